"""Resources of the Proxmox VE API."""
