"""Desired states on a host."""
