"""Roles of GPU sharing."""
