"""Checks of k3s."""
