"""Renderers of plans, runs and checks."""
