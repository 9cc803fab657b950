"""Flags of storages, bridges of Open vSwitch and lists of devices in mappings, as the real API answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.lab.api.errors import ApiError
from provision.lab.api.pci import mapping_problem
from provision.lab.api.storages import Storage, Storages
from tests.unit.lab_api.fakes import device

CARD = [
    device("0000:02:00.0", "030000", "10de:2204", 13, None),
    device("0000:02:00.1", "040300", "10de:1aef", 13, None),
    device("0000:03:00.0", "030000", "10de:2204", 14, None),
]
DEVICES = {each.address: each for each in CARD}


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        (Storage("a", "dir", ("images",)), ""),
        (Storage("a", "dir", ("images",), nodes=("pve", "pve2")), ""),
        (Storage("a", "dir", ("images",), disabled=True), "storage 'a' is disabled"),
        (Storage("a", "dir", (), nodes=("pve2",)), "storage 'a' is not available on node 'pve'"),
    ],
)
def test_a_storage_that_the_node_cannot_use_is_refused(tmp_path: Path, storage: Storage, reason: str) -> None:
    storages = Storages(tmp_path, (storage,), "pve")
    if not reason:
        assert storages.get("a") is storage
        return
    with pytest.raises(ApiError, match=reason):
        storages.get("a")


@pytest.mark.parametrize(
    ("path", "group", "problem"),
    [
        ("0000:02:00", "13", None),
        ("0000:02:00.0;0000:03:00.0", "13", None),  # the group of the first one counts
        ("0000:02:00.0;0000:02:00.1", "13", "'id' does not match for 'gpu'"),
        ("0000:02:00.0;0000:09:00.0", "13", "pci device '0000:09:00.0' not found"),
        ("0000:03:00", "13", "'iommugroup' does not match"),
    ],
)
def test_each_device_of_a_mapping_must_have_its_ids(path: str, group: str, problem: str | None) -> None:
    entry = {"path": path, "id": "10de:2204", "subsystem-id": "1af4:1100", "iommugroup": group}
    found = mapping_problem(entry, DEVICES, "gpu")
    assert (found is None) if problem is None else problem in str(found)
