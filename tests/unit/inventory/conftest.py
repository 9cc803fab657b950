from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

SITE = """\
version: 1
name: site
access: { user: debian, key: ~/.ssh/id }
network:
  cidr: 10.0.0.0/24
  gateway: 10.0.0.1
  dhcp: { backend: manual, range: 10.0.0.100-10.0.0.199 }
images:
  debian-12: { url: https://images.example/debian.img, sha256: "@SHA" }
hypervisors:
  pve:
    address: 10.0.0.5
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
    cards:
      one: { address: "0000:02:00", id: "10de:2204" }
profiles:
  small: { hypervisor: pve, image: debian-12, cores: 2, memory: 1GiB, disk: 4GiB }
nodes:
  vm-1: { profile: small, vmid: 101, address: 10.0.0.11 }
  vm-2: { profile: small, vmid: 102, address: 10.0.0.12, gpus: [one] }
""".replace("@SHA", "ab" * 32).replace("@PRINT", ":".join(["AB"] * 32))

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str | bytes, name: str = "site.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


Loads = Callable[..., Inventory]
Fails = Callable[..., tuple[Diagnostic, ...]]


@pytest.fixture
def loads(write: Write) -> Loads:
    def run(
        text: str, environ: Mapping[str, str] | None = None, overlays: tuple[Path, ...] = ()
    ) -> Inventory:
        return load(write(text), overlays=overlays, environ=environ or {})

    return run


@pytest.fixture
def fails(write: Write) -> Fails:
    def run(text: str | bytes, environ: Mapping[str, str] | None = None) -> tuple[Diagnostic, ...]:
        with pytest.raises(UsageError) as caught:
            load(write(text), environ=environ or {})
        return caught.value.diagnostics

    return run


def marked(problem: Diagnostic) -> str:
    """What the mark under the line covers."""
    source = problem.source
    return "" if source is None else source.text[source.column - 1 : source.column - 1 + source.width]
