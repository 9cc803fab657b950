"""Roles of the cluster itself."""
