"""Roles of DHCP."""
