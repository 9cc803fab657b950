"""Typed views over snapshots."""
