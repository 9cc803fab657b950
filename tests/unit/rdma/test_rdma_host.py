"""The role rdma_host on hosts in memory, and what preflight says of their rails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.rule import Evidence
from provision.inventory import Inventory, Subject
from provision.rdma import preflight
from provision.rdma.queries import RdmaState, RdmaStatus
from provision.rdma.roles import rdma_host
from provision.rdma.unsupported import unsupported
from provision.testing.model_host import ModelHost, guest_state
from provision.testing.model_rdma import rails_of
from provision.testing.model_state import ModelFile
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from tests.unit.hosts.converge import converge, killed_everywhere
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

NODE = Subject("node", "n1")
SITE = """version: 1
name: site
access: { user: root }
rdma: { netns: MODE }
nodes:
  n1:
    address: 10.0.0.9
    rails: { r0: { device: rdma7, hca: mlx5_8, mtu: 4220 } }
    rail_addresses: { r0: 10.224.7.143/12 }
"""


def inventory_of(folder: Path, mode: str = "shared", more: str = "") -> Inventory:
    (folder / "site.yaml").write_text(SITE.replace("MODE", mode) + more)
    return load(folder / "site.yaml", environ={})


def node(inventory: Inventory, **fields: Any) -> ModelHost:
    state = guest_state()
    state.rdma = replace(rails_of(inventory.nodes["n1"]), **fields)
    return ModelHost("n1/ssh", state)


def apply(inventory: Inventory, host: ModelHost) -> bool:
    return converge(host, resources_of(rdma_host, inventory, NODE, host))


def test_another_mode_of_namespaces_costs_one_boot(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "exclusive")
    host = node(inventory)
    boots = host.state.boots
    assert apply(inventory, host)
    assert (host.state.boots, host.state.rdma.netns) == (boots + 1, "exclusive")
    assert not apply(inventory, host)


def test_the_mode_that_is_active_is_written_without_a_boot(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path)
    host = node(inventory)
    boots = host.state.boots
    assert apply(inventory, host)
    assert host.state.boots == boots
    assert "options ib_core netns_mode=1" in host.state.text("/etc/modprobe.d/provision-rdma-netns.conf")


def test_a_core_in_the_kernel_takes_the_mode_on_its_line(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "exclusive")
    host = node(inventory, built_in=True)
    assert apply(inventory, host)
    assert "ib_core.netns_mode=0" in host.state.cmdline.split()
    assert host.state.rdma.netns == "exclusive"


def test_a_node_that_dies_anywhere_is_finished_by_the_next_run(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "exclusive")
    assert killed_everywhere(
        lambda: node(inventory), lambda host: resources_of(rdma_host, inventory, NODE, host)
    )


def test_nvidia_s_own_stack_keeps_its_packages(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, more="    ofed: { manage: false }\n")
    host = node(inventory)
    apply(inventory, host)
    assert "rdma-core" not in host.state.packages


VIRTUAL = """network: { cidr: 10.0.0.0/24, gateway: 10.0.0.1, dhcp: { backend: static } }
hypervisors:
  pve:
    address: 10.0.0.5
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
    cards: { nic: { address: "0000:81:00", functions: [2] } }
""".replace("@PRINT", ":".join(["AB"] * 32))


@pytest.mark.parametrize(("pci", "refused"), [("[nic]", []), ("[]", ["rdma_vm"])])
def test_rails_of_a_vm_are_served_by_a_card_that_is_passed_to_it(
    tmp_path: Path, pci: str, refused: list[str]
) -> None:
    vm = f"    hypervisor: pve\n    vmid: 101\n    hostname: unmanaged\n    pci: {pci}\n"
    text = SITE.replace("user: root", "user: root, key: ./id").replace("MODE", "shared")
    (tmp_path / "site.yaml").write_text(text + vm + VIRTUAL)
    inventory = load(tmp_path / "site.yaml", environ={})
    assert [each.role for each in unsupported(inventory)] == refused
    host = node(inventory)
    assert apply(inventory, host)
    assert "rdma-core" in host.state.packages
    assert not apply(inventory, host)
    assert findings_of(inventory, rails_of(inventory.nodes["n1"])) == []
    low = interface(rails_of(inventory.nodes["n1"]), mtu=1500)
    assert [finding.code for finding in findings_of(inventory, low)] == ["RAIL_MTU"]


POD_NETWORK = """k3s: { version: v1.35.7+k3s1 }
"""
NETWORKS = "rdma: { netns: MODE, networks: { roce: { rail: r0, namespaces: [a] } } }"


def test_a_node_of_the_cluster_gets_the_cni_programs_that_k3s_lacks(tmp_path: Path) -> None:
    text = SITE.replace("rdma: { netns: MODE }", NETWORKS).replace("MODE", "shared")
    (tmp_path / "site.yaml").write_text(text + "    k3s: server\n" + POD_NETWORK)
    inventory = load(tmp_path / "site.yaml", environ={})
    host = node(inventory)
    assert apply(inventory, host)
    link = host.state.files["/var/lib/rancher/k3s/data/cni/macvlan"]
    assert (link.type, link.target) == ("link", "/usr/lib/cni/macvlan")
    assert not apply(inventory, host)
    # What a person or a later release of k3s has put there stays.
    host.state.files["/var/lib/rancher/k3s/data/cni/macvlan"] = ModelFile(b"their own", mode="0755")
    assert not apply(inventory, host)


def test_a_node_without_networks_of_pods_gets_no_cni_programs(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path)
    host = node(inventory)
    apply(inventory, host)
    assert not host.state.packages.get("containernetworking-plugins")


def findings_of(inventory: Inventory, status: RdmaStatus) -> list[Diagnostic]:
    host = node(inventory)
    host.state.rdma = status
    snapshot = host.answer(frozenset({RdmaState()}), Cancel())
    evidence = Evidence(inventory, {"n1/ssh": snapshot}, ())
    findings = [finding for rule in preflight.RULES for finding in rule.check(evidence)]
    return [finding for finding in findings if isinstance(finding, Diagnostic)]


def port(status: RdmaStatus, **fields: Any) -> RdmaStatus:
    return replace(status, ports=(replace(status.ports[0], **fields),))


def interface(status: RdmaStatus, **fields: Any) -> RdmaStatus:
    return replace(status, interfaces=(replace(status.interfaces[0], **fields),))


CASES = [
    ("as declared", lambda status: status, [], ""),
    (
        "another mask",
        lambda status: interface(status, addresses=("10.224.7.143/24",)),
        ["RAIL_MISSING"],
        "10.224.7.143/12",
    ),
    ("no such address", lambda status: replace(status, interfaces=()), ["RAIL_MISSING"], "no interface has"),
    ("no RDMA driver", lambda status: replace(status, ports=()), ["RAIL_NO_RDMA"], "rdma7 has no RDMA port"),
    (
        "an upgrade renamed it",
        lambda status: port(status, device="rocep160s0"),
        ["RAIL_RENAMED"],
        "hca: rocep160s0",
    ),
    ("the cable is out", lambda status: port(status, state="DOWN"), ["RAIL_DOWN"], "ethtool rdma7"),
    ("state not readable", lambda status: port(status, state=""), ["RAIL_DOWN"], "not readable"),
    ("InfiniBand", lambda status: port(status, link_layer="InfiniBand"), ["RAIL_NOT_ETHERNET"], "macvlan"),
    ("v1 only", lambda status: port(status, gids=status.ports[0].gids[:1]), ["RAIL_NO_GID"], "show_gids"),
    ("another MTU", lambda status: interface(status, mtu=1500), ["RAIL_MTU"], "mtu: 1500"),
]


@pytest.mark.parametrize(
    ("change", "codes", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_rail_that_pods_could_not_use_is_refused(
    tmp_path: Path, change: Any, codes: list[str], words: str
) -> None:
    inventory = inventory_of(tmp_path)
    findings = findings_of(inventory, change(rails_of(inventory.nodes["n1"])))
    assert [finding.code for finding in findings] == codes
    assert words in "".join(f"{finding.summary} {finding.remedy}" for finding in findings)


STACKS = [("24.10-1.1.4.0", True), ("5.8-1.0.1.1", False), ("", False), ("24.10-0.9", True)]


@pytest.mark.parametrize(("present", "is_fine"), STACKS)
def test_an_old_driver_stack_is_refused(tmp_path: Path, present: str, is_fine: bool) -> None:
    inventory = inventory_of(tmp_path, more="    ofed: { manage: false, minimum: '24.10' }\n")
    status = replace(rails_of(inventory.nodes["n1"]), ofed=present)
    codes = [finding.code for finding in findings_of(inventory, status)]
    assert codes == ([] if is_fine else ["OFED_TOO_OLD"])


def test_one_network_needs_one_name_of_its_interface(tmp_path: Path) -> None:
    text = (
        SITE.replace("MODE", "shared").replace("rdma: {", "rdma: { networks: { roce: { rail: r0 } }, ")
        + "  n2:\n    address: 10.0.0.10\n    rails: { r0: { device: rdma9, hca: mlx5_8 } }\n"
    )
    (tmp_path / "site.yaml").write_text(text)
    inventory = load(tmp_path / "site.yaml", environ={})
    snapshots = {}
    for name, device in (("n1", "rdma7"), ("n2", "rdma9")):
        host = node(inventory)
        host.state.rdma = interface(rails_of(inventory.nodes["n1"]), name=device)
        snapshots[f"{name}/ssh"] = host.answer(frozenset({RdmaState()}), Cancel())
    (finding,) = preflight.differing(Evidence(inventory, snapshots, ()))
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.evidence) == ("RAIL_NAMES_DIFFER", ("n1: rdma7", "n2: rdma9"))


@pytest.mark.parametrize(("loaded", "driver"), [(True, False), (False, False), (True, True)])
def test_a_module_for_gpudirect_that_is_loaded_comes_at_boot_too(
    tmp_path: Path, loaded: bool, driver: bool
) -> None:
    inventory = inventory_of(tmp_path)
    text = (tmp_path / "site.yaml").read_text()
    own = "{ origin: ubuntu, branch: '580' }" if driver else "{ manage: false, minimum: '580' }"
    (tmp_path / "site.yaml").write_text(
        text.replace(
            "address: 10.0.0.9", f"address: 10.0.0.9\n    gpu_cards: {{ count: 1 }}\n    driver: {own}"
        )
    )
    inventory = load(tmp_path / "site.yaml", environ={})
    host = node(inventory)
    if loaded:
        host.state.modules.add("nvidia_peermem")
    apply(inventory, host)
    path = "/etc/modules-load.d/provision-nvidia_peermem.conf"
    assert (path in host.state.files) is (loaded and not driver), "with our driver, its role does it"
    assert not apply(inventory, host)
