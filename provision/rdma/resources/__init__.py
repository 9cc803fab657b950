"""Desired states of RDMA."""
