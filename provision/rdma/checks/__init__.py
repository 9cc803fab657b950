"""Checks of RDMA."""
