"""Checks of addresses."""
