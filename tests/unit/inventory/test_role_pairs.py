"""Each role with each shipped inventory: a pair without a step is listed, for it proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Site
from provision.api.domains import load_inventory, role_references

INVENTORIES = Path(__file__).parents[3] / "inventories"
VIRTUAL = {"address", "dhcp_reservation", "first_contact", "hypervisor_host", "image", "pci_mapping"}
OF_MACHINES = {*VIRTUAL, "base_os", "host_resources", "virtual_machine"}
CLUSTER = {"k3s_server", "k3s_agent", "kubernetes_node", "gpu_operator", "network_operator", "gpu_sharing"}
NO_CLUSTER = {*CLUSTER, "gpu_driver", "rdma_host", "shared_storage"}
ON_DEMAND = {"nvls_recovery"}
"""Roles of a playbook alone: no shipped inventory has a step of theirs by itself."""
EMPTY = {
    "h100-kai-fractions": OF_MACHINES,
    "h100-kai": {*OF_MACHINES, "gpu_driver"},
    "h100-pair": {*OF_MACHINES, "gpu_driver"},
    "homelab": {"gpu_sharing", "host_resources", "network_operator", "rdma_host", "shared_storage"},
    "lab": NO_CLUSTER,
    "starter": {*NO_CLUSTER, "hypervisor_host", "pci_mapping"},
    "tour": {*NO_CLUSTER, "hypervisor_host", "pci_mapping"},
}
"""Roles that have nothing to do in an inventory."""


@pytest.mark.parametrize("path", sorted(INVENTORIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_role_without_a_step_in_a_shipped_inventory_is_listed(path: Path, tmp_path: Path) -> None:
    site = Site(load_inventory(path), "site", tmp_path)
    present = {step.id.role for step in site.steps()}
    assert set(role_references()) - present == EMPTY[path.stem] | ON_DEMAND


def test_every_role_has_a_step_in_some_shipped_inventory() -> None:
    assert not set.intersection(*EMPTY.values())
