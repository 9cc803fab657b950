"""What `provision doctor` looks for on a node of the cluster.

Sources: flannel-io/flannel#1279, #2152, k3s-io/k3s#5013 (wrong checksums of VXLAN packets); systemd.link(5).
"""

from __future__ import annotations

from provision.hosts.doctor import HostRule

RULES = (
    HostRule(
        "VXLAN_CHECKSUMS",
        "the kernel drops packets of pods on other nodes, because their checksums are wrong",
        "switch the offload off on the senders: `ethtool -K flannel.1 tx-checksum-ip-generic off`, and for"
        " the next boot a file in /etc/systemd/network with `[Match] OriginalName=flannel.1` and"
        " `[Link] TransmitChecksumOffload=no`",
        "dmesg 2>/dev/null | grep -E 'UDP: bad checksum.*:(8472|4789) ' | tail -n 5",
    ),
)
