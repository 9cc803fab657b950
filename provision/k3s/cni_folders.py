"""Where containerd of k3s looks for CNI programs and their configuration.

Since October 2024 (k3s#10869) all releases have the same folder, and an upgrade keeps what others put there.
"""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = "/var/lib/rancher/k3s/data/cni"
CONFIGURATION: Final = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
