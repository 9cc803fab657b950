"""Which machine answered, and what clones, virtual addresses and new names are refused with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.query import Frame
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.hosts.identity_rules import duplicate, foreign_address, renamed
from provision.hosts.queries.identity import IDENTITY_KIND, Identity, MachineIdentity
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic

UUID = "4c4c4544-0042-4a10-8051-b4c04f4e4d32"
ID = "0123456789abcdef0123456789abcdef"


def asked(text: str) -> object:
    frame = Frame(f"{text}done|\n".encode(), b"", 0)
    return IDENTITY_KIND.parse(frame, [Identity()])[Identity()]


def test_a_machine_is_read_as_it_is() -> None:
    text = (
        f"me|{ID}|{UUID.upper()}|gpu05|ssh-ed25519 AAAAx root@x|Gpu-A\n"
        "mac|52:54:00:00:00:01\nmac|00:00:00:00:00:00\naddress|10.0.0.5\n"
    )
    assert asked(text) == MachineIdentity(
        ID, UUID, "gpu05", "ssh-ed25519 AAAAx", ("52:54:00:00:00:01",), "gpu-a", ("10.0.0.5",)
    )


@pytest.mark.parametrize(
    ("machine", "uuid"),
    [
        ("uninitialized", "00000000-0000-0000-0000-000000000000"),
        ("", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"),
        ("", "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE"),
        ("0" * 31, "03000200-0400-0500-0006-000700080009"),
        ("", "Not Settable"),
    ],
)
def test_dummies_tell_no_machines_apart(machine: str, uuid: str) -> None:
    assert asked(f"me|{machine}|{uuid}|h||\n") == MachineIdentity(hostname="h")


def inventory_of(folder: Path, more: str = "") -> Inventory:
    (folder / "site.yaml").write_text(
        "version: 1\nname: site\naccess: { user: root }\nk3s: { version: v1.35.7+k3s1 }\nnodes:\n"
        f"  a: {{ address: 10.0.0.1, k3s: server{more} }}\n  b: {{ address: 10.0.0.2, k3s: agent }}\n"
        "  c: { address: 10.0.0.3 }\n"
    )
    return load(folder / "site.yaml", environ={})


def machine(number: int) -> MachineIdentity:
    return MachineIdentity(
        f"{number:032x}",
        f"4c4c4544-0042-4a10-8051-{number:012d}",
        f"host-{number}",
        f"ssh-ed25519 key-{number}",
        (f"52:54:00:00:00:{number:02x}",),
        addresses=(f"10.0.0.{number}",),
    )


def evidence(inventory: Inventory, *machines: MachineIdentity) -> Evidence:
    snapshots = {
        f"{name}/ssh": Snapshot(f"{name}/ssh", answers={Identity(): identity})
        for name, identity in zip("abc", machines, strict=False)
    }
    return Evidence(inventory, snapshots, ())


def shown(findings: object) -> list[tuple[str, str]]:
    assert isinstance(findings, list)
    return [(one.code, one.summary) for one in findings if isinstance(one, Diagnostic)]


MARKS = [
    (replace(machine(3), machine_id=machine(1).machine_id), "machine-id"),
    (replace(machine(3), product_uuid=machine(1).product_uuid), "product UUID"),
    (replace(machine(3), host_key=machine(1).host_key), "SSH host key"),
    (replace(machine(3), macs=machine(1).macs), "MAC address"),
]


@pytest.mark.parametrize(("clone", "words"), MARKS, ids=[words for _, words in MARKS])
def test_a_clone_is_refused_by_what_it_kept(tmp_path: Path, clone: MachineIdentity, words: str) -> None:
    inventory = inventory_of(tmp_path)
    ((code, summary),) = shown(duplicate(evidence(inventory, machine(1), machine(2), clone)))
    assert code == "IDENTITY_DUPLICATE"
    assert summary.startswith("a, c have ")
    assert words in summary


def test_machines_of_their_own_are_no_clones(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path)
    assert duplicate(evidence(inventory, machine(1), machine(2), machine(3))) == []
    assert duplicate(evidence(inventory, MachineIdentity(), MachineIdentity())) == []


def test_a_cluster_node_has_its_address_itself(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path)
    taken = replace(machine(2), addresses=("10.0.0.77",))
    assert shown(foreign_address(evidence(inventory, machine(1), taken, taken))) == [
        ("NODE_ADDRESS_FOREIGN", "the machine that answers at 10.0.0.2 of b does not have that address")
    ]
    unknown = replace(machine(2), addresses=())
    assert foreign_address(evidence(inventory, machine(1), unknown)) == []


@pytest.mark.parametrize(
    ("joined", "more", "refused"),
    [("a", "", False), ("", "", False), ("old-name", "", True), ("old-name", ", kube_name: old-name", False)],
)
def test_a_node_keeps_the_name_by_which_it_joined(
    tmp_path: Path, joined: str, more: str, refused: bool
) -> None:
    findings = renamed(evidence(inventory_of(tmp_path, more), replace(machine(1), node_name=joined)))
    assert bool(findings) is refused
    if refused:
        assert shown(findings)[0][0] == "NODE_NAME_CHANGE"
