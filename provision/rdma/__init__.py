"""RDMA networks of pods."""
