"""One card has many spellings: each is resolved to the PCI functions that a start takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.api.domains import load_inventory
from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, UnknownYet
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import ShellResult
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.inventory import Inventory
from provision.proxmox.host_facts import RESERVATIONS, VM_DEVICES
from provision.proxmox.pci_entries import PciEntries, full_address, reservations
from provision.proxmox.preflight.claims import claimed
from provision.proxmox.queries import Mappings, PciMap, VmEntry, VmList
from provision.proxmox.resources.vm_cards import placed_cards
from provision.proxmox.resources.vm_parts import Passed
from provision.values.diagnostics import Diagnostic
from tests.unit.proxmox.roles.world import World

CARD = frozenset({"0000:02:00.0", "0000:02:00.1"})
OTHER = frozenset({"0000:03:00.0", "0000:03:00.1"})
MAPPINGS = (
    PciMap("gaming", ("node=pve,path=0000:02:00,id=10de:2204",)),
    PciMap("list", ("node=pve,path=0000:02:00.0;0000:02:00.1,id=10de:2204",)),
    PciMap("sound", ("node=pve,path=0000:02:00.1,id=10de:1aef",)),
    PciMap("pool", ("node=pve,path=0000:03:00,id=10de:2204", "path=0000:02:00,id=10de:2204,node=pve")),
    PciMap("elsewhere", ("node=pve2,path=0000:02:00,id=10de:2204",)),
    PciMap("both", ("node=pve2,path=0000:02:00,id=10de:2204", "node=pve,path=0000:03:00,id=10de:2204")),
    PciMap("short", ("path=02:00,node=pve,id=10de:2204",)),
    PciMap("halves", ("node=pve,path=02:00.1;0000:02:00.0,id=10de:2204,subsystem-id=1458:4043",)),
    PciMap("mixed", ("node=pve,path=0000:02:00.0;0000:03:00.0,id=10de:2204",)),
    PciMap("virtual", ("node=pve,path=0000:02:10.0,id=10de:2204", "node=pve,path=0000:02:10.1,id=10de:2204")),
    PciMap("described", ("description=a card,iommugroup=13,id=10de:2204,path=0000:02:00,node=pve",)),
)
ENTRIES = PciEntries("pve", CARD | OTHER, MAPPINGS)
OURS = "mapping=provision-lab-gpu,pcie=1"

SAME = [
    "0000:02:00,pcie=1",
    "02:00,pcie=1",
    "host=02:00,pcie=on",
    "host=0000:02:00,pcie=yes,rombar=1",
    "02:00.0;02:00.1,pcie=1",
    "02:00.1;0000:02:00.0,pcie=1",
    "pcie=1,host=0000:02:00.0;0000:02:00.1",
    "0000:02:00;0000:02:00.1,pcie=true",
    "mapping=gaming,pcie=1",
    "pcie=1,mapping=list,rombar=0",
    "mapping=described,pcie=1,x-vga=1",
    # as guides and reports write them: primary cards, firmware files, ids that the guest sees, repeats
    "0000:02:00,pcie=1,x-vga=1,romfile=vbios.bin",
    "host=0000:02:00,pcie=1,vendor-id=0x10de,device-id=0x2204,sub-vendor-id=0x1458",
    "pcie=1,rombar=0,host=0000:02:00",
    "0000:02:00.0;0000:02:00.1;0000:02:00.1,pcie=1",
    "02:00;0000:02:00,pcie=1",
    "mapping=short,pcie=1",
    "mapping=halves,pcie=1,x-vga=1",
]
OVERLAPPING = [
    "0000:02:00",  # not PCI Express
    "0000:02:00.0,pcie=1",
    "host=02:00.1",
    "02:00.0;03:00.0,pcie=1",
    "02:00;03:00,pcie=1",
    "mapping=sound,pcie=1",
    "mapping=pool,pcie=1",
    "mapping=gaming",
    "mapping=gaming,mdev=nvidia-222",
    "0000:02:00.0,mdev=nvidia-222,pcie=1",
    "0000:02:00,pcie=0",
    "0000:02:00.0,rombar=0",
    "0000:02:00.0,pcie=1,x-vga=1,romfile=vbios.bin",
    "mapping=mixed,pcie=1",
    "mapping=halves",
    "02:00.1;03:00.1,pcie=1",
]
APART = [
    "0000:03:00,pcie=1",
    "03:00.0;03:00.1",
    "0001:02:00,pcie=1",
    "10000:02:00,pcie=1",
    "mapping=both,pcie=1",
    "mapping=elsewhere,pcie=1",
    "mapping=nothing-of-this-name",
    "0000:20:00.0",
    "0000:02:10.0,pcie=1",  # a virtual function
    "mapping=virtual,pcie=1",
    "0000:02:01.0",
    "0000:00:02,legacy-igd=1,x-vga=1",  # slot 2 of bus 0
    "0002:02:00.0,pcie=1",
    "0000:12:00,pcie=1",
    "mapping=,pcie=1",
    "host=",
    "",
    "pcie=1",
    "garbage;;=,,",
]


@pytest.mark.parametrize("value", SAME)
def test_each_spelling_of_a_card_is_the_card(value: str) -> None:
    assert ENTRIES.choices(value) == (CARD,)
    placed = placed_cards((Passed("provision-lab-gpu", CARD),), slots(value), ENTRIES, "provision-lab-")
    assert placed == {"hostpci0": value}, "it is passed already: nothing is added and nothing changes"


@pytest.mark.parametrize("value", OVERLAPPING)
def test_what_passes_a_part_of_a_card_gives_way_to_the_card(value: str) -> None:
    assert ENTRIES.may_take(value) & CARD
    placed = placed_cards((Passed("provision-lab-gpu", CARD),), slots(value), ENTRIES, "provision-lab-")
    assert placed == {"hostpci0": OURS}


@pytest.mark.parametrize("value", APART)
def test_another_card_of_any_spelling_stays_beside_ours(value: str) -> None:
    assert not ENTRIES.may_take(value) & CARD
    placed = placed_cards((Passed("provision-lab-gpu", CARD),), slots(value), ENTRIES, "provision-lab-")
    first = {"hostpci0": value} if value else {}
    assert placed == {**first, "hostpci1" if value else "hostpci0": OURS}


@pytest.mark.parametrize("twice", [*SAME, *OVERLAPPING])
def test_a_card_that_an_entry_passes_once_more_is_passed_once(twice: str) -> None:
    values = {**slots(OURS), "hostpci3": twice}
    known = PciEntries("pve", CARD | OTHER, (*MAPPINGS, PciMap("provision-lab-gpu", MAPPINGS[0].entries)))
    passed = (Passed("provision-lab-gpu", CARD),)
    assert placed_cards(passed, values, known, "provision-lab-") == {"hostpci0": OURS}


def test_two_cards_in_one_entry_become_two_entries() -> None:
    passed = (Passed("provision-lab-a", CARD), Passed("provision-lab-b", OTHER))
    placed = placed_cards(passed, slots("02:00;03:00,pcie=1"), ENTRIES, "provision-lab-")
    assert list(placed) == ["hostpci0", "hostpci1"]
    assert list(placed.values()) == ["mapping=provision-lab-a,pcie=1", "mapping=provision-lab-b,pcie=1"]


def slots(first: str) -> dict[str, str]:
    return {"hostpci0": first, **{f"hostpci{number}": "" for number in range(1, 16)}}


def test_without_facts_of_the_host_a_slot_is_all_of_its_functions() -> None:
    bare = PciEntries("pve")
    assert bare.path("02:00") == {f"0000:02:00.{number}" for number in range(8)}
    assert bare.may_take("02:00.1;02:00.0") <= bare.path("0000:02:00")
    assert bare.choices("mapping=gaming") == ()


def test_reservations_are_read_by_function() -> None:
    text = "0000:02:00.0 500 pid:4711\n02:00.1 500 time:1795960000\nnonsense\n0000:03:00.0 x pid:1\n"
    assert reservations(text) == {"0000:02:00.0": 500, "0000:02:00.1": 500}


@given(st.text("0123456789abcdef:.;,=pciemapgnghostx-", max_size=40))
def test_any_text_means_some_functions_or_none(text: str) -> None:
    for functions in ENTRIES.choices(text):
        assert functions
        assert all(full_address(function) == function for function in functions)


@given(st.sets(st.sampled_from(sorted(CARD | OTHER)), min_size=1), st.sampled_from(["", "0000:"]))
def test_a_list_means_the_same_in_any_spelling(functions: set[str], domain: str) -> None:
    text = ";".join(domain + function.removeprefix("0000:").upper() for function in sorted(functions))
    assert ENTRIES.choices(f"host={text}") == (frozenset(functions),)


# ---------------------------------------------------------------- who else has the card


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    """A site whose VM vm-gpu takes 0000:02:00."""
    folder = tmp_path_factory.mktemp("site")
    World(folder)
    return load_inventory(folder / "site.yaml")


Claims = Callable[..., list[Finding]]


@pytest.fixture
def claims(inventory: Inventory) -> Claims:
    """The rule's findings about VM 500 of a stranger, with some lines in its file."""

    def findings(
        rows: str, *, mappings: object = MAPPINGS, reserved: str = "", status: str = "running"
    ) -> list[Finding]:
        text = "".join(f"/etc/pve/nodes/pve/qemu-server/500.conf:{row}\n" for row in rows.splitlines())
        functions = tuple(PciFunction(each, "10de", "2204", "030000") for each in sorted(CARD | OTHER))
        host = {
            VM_DEVICES: ShellResult(0, text.encode(), b""),
            PciFunctions(): functions,
            RESERVATIONS: reserved.encode() or None,
        }
        api = {VmList(): (VmEntry(500, "pve", "qemu", "games", status),), Mappings(): mappings}
        snapshots = {"pve/ssh": Snapshot("", answers=host), "pve/api": Snapshot("", answers=api)}
        return claimed(Evidence(inventory, snapshots, ()))

    return findings


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code if isinstance(finding, Diagnostic) else "unknown" for finding in findings]


@pytest.mark.parametrize("value", [*SAME, *OVERLAPPING])
def test_a_running_vm_that_has_the_card_is_named_whatever_it_calls_it(value: str, claims: Claims) -> None:
    (finding,) = claims(f"hostpci3: {value}")
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.subject) == ("GPU_CLAIMED_BY_OTHER_VM", "vm-gpu")
    assert value in finding.evidence[0]
    assert "qm set 500 --delete hostpci3" in finding.remedy


@pytest.mark.parametrize("value", APART)
def test_a_running_vm_with_another_card_is_no_claim(value: str, claims: Claims) -> None:
    assert codes(claims(f"hostpci0: {value}")) == []


@pytest.mark.parametrize("value", [*SAME, *OVERLAPPING])
def test_a_card_that_a_running_vm_gets_at_its_next_start_is_claimed(value: str, claims: Claims) -> None:
    (finding,) = claims(f"hostpci0: 0000:03:00\n[PENDING]\nhostpci1: {value}")
    assert isinstance(finding, Diagnostic)
    assert finding.evidence[-1].endswith("(after its next start)")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("hostpci0: 02:00\n[PENDING]\ndelete: hostpci0", ["GPU_CLAIMED_BY_OTHER_VM"]),  # until it stops
        ("hostpci0: 02:00\n[PENDING]\nhostpci0: 03:00", ["GPU_CLAIMED_BY_OTHER_VM"]),
        ("hostpci0: 03:00\n[before]\nhostpci0: 02:00", []),  # a snapshot
        ("[PENDING]\ndelete: hostpci0", []),
    ],
)
def test_what_is_pending_counts_beside_what_is_there(rows: str, expected: list[str], claims: Claims) -> None:
    assert codes(claims(rows)) == expected


def test_a_vm_that_is_off_has_no_card(claims: Claims) -> None:
    assert codes(claims("hostpci0: 02:00", status="stopped")) == []
    assert codes(claims("hostpci0: 02:00", status="paused")) == ["GPU_CLAIMED_BY_OTHER_VM"]


def test_of_a_pool_a_running_vm_has_what_it_reserved(claims: Claims) -> None:
    taken = "0000:03:00.0 500 pid:7\n0000:03:00.1 500 pid:7\n"
    assert codes(claims("hostpci0: mapping=pool", reserved=taken)) == []
    assert codes(claims("hostpci0: mapping=pool", reserved=taken.replace(":03:", ":02:"))) == [
        "GPU_CLAIMED_BY_OTHER_VM"
    ]
    assert codes(claims("hostpci0: mapping=pool", reserved="")) == ["GPU_CLAIMED_BY_OTHER_VM"]


def test_a_mapping_that_cannot_be_read_is_unknown_and_no_absence(claims: Claims) -> None:
    (finding,) = claims("hostpci0: mapping=gaming", mappings=Unknown("no rights"))
    assert isinstance(finding, UnknownYet)
    assert "mapping=gaming" in finding.reason
