"""Composition root and public library: load, plan, apply, verify, destroy."""
