"""Desired states in a cluster."""
