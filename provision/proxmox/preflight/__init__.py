"""Rules about hypervisors and VMs."""
