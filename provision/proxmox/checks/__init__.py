"""Checks of hypervisors and VMs."""
