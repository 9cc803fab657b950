"""Places of dnsmasq's files, as its back end and the checks share them (dnsmasq(8), Debian's package)."""

from __future__ import annotations

HOSTS_FOLDER = "/etc/dnsmasq.d/hosts"
"""Holds reservations unless `network.dhcp.file` names another dhcp-hostsdir."""
LEASE_FILE = "/var/lib/misc/dnsmasq.leases"
CONFIGURATION = "/etc/dnsmasq.conf /etc/dnsmasq.d"
"""What dnsmasq reads besides, as words of a shell command."""
