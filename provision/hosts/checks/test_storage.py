"""Storage that nodes share: mounted, the same on all, and with enough space."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.hosts.names import marker


@pytest.fixture
def host(site: Site, node: str) -> Host:
    """The node."""
    if not site.inventory.storage:
        raise NotDeclared("no shared storage")
    return site.host(f"{node}/ssh")


def test_shared_storage_is_mounted(site: Site, host: Host) -> None:
    """Every storage that provision mounts is mounted from its server, now and at boot."""
    managed = [one for one in site.inventory.storage.values() if one.manage and one.server is not None]
    if not managed:
        raise NotDeclared("no storage is mounted by provision")
    mounts = [row.split() for row in host.check_output("cat /proc/self/mounts").splitlines()]
    table = [row.split() for row in host.check_output("cat /etc/fstab").splitlines()]
    for storage in managed:
        sources = [row[0] for row in mounts if row[1:2] == [storage.path]]
        assert sources[-1:] == [storage.server], f"{storage.path}: {', '.join(sources) or 'not mounted'}"
        assert [storage.server, storage.path] in [row[:2] for row in table], f"{storage.path} is not in fstab"


def test_shared_storage_is_the_same(site: Site, host: Host) -> None:
    """What every node wrote into a shared storage is there on each of them."""
    nodes = [node.name for node in site.inventory.nodes.values() if node.manage]
    shared = [
        storage
        for storage in site.inventory.storage.values()
        if (storage.same_on_all or (storage.manage and storage.server))
        and "ro" not in (storage.options or "").split(",")
    ]
    if not shared:
        raise NotDeclared("no storage is the same on all nodes")
    for storage in shared:
        for name in nodes:
            result = host.run("cat -- %s", marker(storage.path, name))
            assert result.rc == 0, f"{storage.path} lacks the marker of {name}"
            assert result.stdout.strip() == site.inventory.name, f"{storage.path}: {name} is of another site"


def test_shared_storage_has_space(site: Site, host: Host) -> None:
    """Every shared storage has the declared free space."""
    sized = [storage for storage in site.inventory.storage.values() if storage.free is not None]
    if not sized:
        raise NotDeclared("no free space")
    for storage in sized:
        result = host.run("df -kP -- %s | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4", storage.path)
        assert result.stdout.strip().isdecimal(), f"{storage.path}: {result.stderr.strip() or 'unknown size'}"
        free = int(result.stdout) // 1024
        assert free >= (storage.free or 0), f"{storage.path} has {free} MiB free, not {storage.free}"
