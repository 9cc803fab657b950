"""Roles of hypervisors and VMs."""
