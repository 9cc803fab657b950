"""DHCP reservations: one file a back end, and what they share."""
