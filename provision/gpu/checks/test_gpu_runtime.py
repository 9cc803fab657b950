"""The container runtime of GPU nodes: what containerd has read when it started."""

from __future__ import annotations

import re

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.kube.names import is_member

CONTAINERD = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
TABLE = re.compile(r"runtimes\.[\"']?nvidia[\"']?\.options\](.*?)(?:\n\s*\[|\Z)", re.DOTALL)
BINARY = re.compile(r"BinaryName\s*=\s*[\"']([^\"']+)[\"']")
TOOLKIT = "/usr/local/nvidia/toolkit/"


LINKS = (
    "for f in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do"
    ' if [ -c "$f" ]; then n=$(stat -c %t:%T "$f"); l=/dev/char/$((0x${n%:*})):$((0x${n#*:}));'
    ' if [ -e "$l" ]; then echo "linked $f"; else echo "unlinked $f"; fi; fi; done'
)
"""Whether each device file of the driver has the link by which systemd knows it."""


def test_pods_keep_cards_after_a_reload(site: Site, node: str) -> None:
    """A reload of systemd takes no card from pods: device files have their links in /dev/char."""
    gpu, declared = site.inventory.gpu, site.inventory.nodes[node]
    if gpu is None or not declared.wants_gpu or not is_member(site.inventory, declared):
        raise NotDeclared("no cards for pods")
    rows = [line.split(maxsplit=1) for line in site.host(f"{node}/ssh").run(LINKS).stdout.splitlines()]
    if not rows:
        raise Trivial("the driver has no device files yet")
    unlinked = [row[1] for row in rows if row[0] == "unlinked"]
    assert not unlinked, (
        f"/dev/char has no links to {', '.join(unlinked)}: the GPU Operator's validator makes them unless"
        " DISABLE_DEV_CHAR_SYMLINK_CREATION is set; or run `nvidia-ctk system create-dev-char-symlinks"
        " --create-all`"
    )


def test_containerd_has_the_runtime(site: Site, node: str) -> None:
    """Containerd works with NVIDIA's runtime, whose program is there: k3s found it when it started."""
    gpu, declared = site.inventory.gpu, site.inventory.nodes[node]
    if (
        gpu is None
        or gpu.toolkit is None
        or not declared.wants_gpu
        or not is_member(site.inventory, declared)
    ):
        raise NotDeclared("no container toolkit for pods")
    host = site.host(f"{node}/ssh")
    text = host.check_output(f"cat {CONTAINERD}")
    table = TABLE.search(text)
    binary = BINARY.search(table[1]) if table is not None else None
    assert binary is not None, (
        f"{CONTAINERD} has no runtime nvidia: restart k3s once the toolkit is installed"
    )
    there = host.run("stat -c '%%F' -- %s", binary[1]).rc == 0
    assert there, f"containerd works with {binary[1]}, which is not there"
    by_operator = binary[1].startswith(TOOLKIT)
    assert by_operator is (gpu.toolkit == "operator"), f"containerd works with {binary[1]}"
