"""Checks of any host."""
