"""Typed views over snapshots: one reader of each answer, for roles and rules alike."""
