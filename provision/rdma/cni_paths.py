"""CNI programs that k3s does not bring, and their package.

k3s brings bandwidth, bridge, firewall, flannel, host-local, loopback and portmap (k3s#9224).
"""

from __future__ import annotations

from typing import Final

PACKAGE: Final = "containernetworking-plugins"
"""Debian's and Ubuntu's package of the CNI project's programs."""
PACKAGED: Final = "/usr/lib/cni"
"""Where the package has them."""
MISSING: Final = {"macvlan": ("macvlan",), "host_device": ("host-device",), "sriov": ()}
"""Programs that networks of pods need beside those of k3s, by method; SR-IOV brings its own."""
