"""Writes the generated pages."""
