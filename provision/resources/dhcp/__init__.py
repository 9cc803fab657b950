"""DHCP reservations, one file a back end."""
