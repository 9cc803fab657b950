"""Queries that a host answers."""
