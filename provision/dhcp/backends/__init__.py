"""DHCP servers, one file each."""
