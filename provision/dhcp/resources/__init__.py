"""Desired states of DHCP servers."""
