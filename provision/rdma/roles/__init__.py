"""Roles of RDMA."""
