"""Desired states of GPU sharing."""
