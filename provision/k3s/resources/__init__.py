"""Desired states of k3s on a host."""
