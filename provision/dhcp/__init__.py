"""Reservations and leases."""
