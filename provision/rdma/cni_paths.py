"""Where containerd of k3s looks for CNI programs and their configuration, and what k3s does not bring.

Since October 2024 (k3s#10869) all releases have the same folder, and an upgrade keeps what others put there.
k3s brings bandwidth, bridge, firewall, flannel, host-local, loopback and portmap (k3s#9224).
"""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = "/var/lib/rancher/k3s/data/cni"
CONFIGURATION: Final = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
PACKAGE: Final = "containernetworking-plugins"
"""Debian's and Ubuntu's package of the CNI project's programs."""
PACKAGED: Final = "/usr/lib/cni"
"""Where the package has them."""
MISSING: Final = {"macvlan": ("macvlan",), "host_device": ("host-device",), "sriov": ()}
"""Programs that networks of pods need beside those of k3s, by method; SR-IOV brings its own."""
