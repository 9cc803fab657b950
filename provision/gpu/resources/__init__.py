"""Desired states of GPUs on a host."""
