"""Words that belong to one domain stay out of what serves all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import provision

PACKAGE = Path(provision.__file__).parent
DOMAIN_WORD = re.compile(
    r"\b(k3s|kube\w*|proxmox|pve|hypervisors?|qemu|vms?|dnsmasq|gpus?|nvidia|pci|iommu|rdma|helm|guests?)\b",
    re.IGNORECASE,
)
OF_A_DOMAIN = {"bootstrap.py", "cards.py", "labs.py", "lab_network.py", "vms.py"}
"""Modules of commands that are named after a domain."""
PATHS = sorted([*(PACKAGE / "report").glob("*.py"), *(PACKAGE / "cli").glob("*.py")])


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path.name not in OF_A_DOMAIN], ids=lambda path: path.stem
)
def test_a_module_for_all_domains_has_no_word_of_one(path: Path) -> None:
    imports = re.compile(r"^(from provision\.cli import|for _module in) .*$", re.MULTILINE)
    assert DOMAIN_WORD.findall(imports.sub("", path.read_text(encoding="utf-8"))) == []
