"""Roles of any host."""
