"""The rehearsal site: a stand-in for a Proxmox site on one Linux machine."""
