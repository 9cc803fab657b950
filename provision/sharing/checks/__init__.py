"""Checks of GPU sharing."""
