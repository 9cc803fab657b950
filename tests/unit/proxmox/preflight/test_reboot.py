"""The reboot of a hypervisor: its cluster, HA, other guests, and the way back to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.api.preflight import evidence
from provision.contracts.effect import Effect
from provision.contracts.resource import Resource, ask
from provision.contracts.role import Context
from provision.contracts.rule import Evidence, UnknownYet
from provision.contracts.snapshot import Pending
from provision.engine.generated import GeneratedValues
from provision.hosts.host_effects import REBOOT_HYPERVISOR
from provision.hosts.queries.shell import ShellResult
from provision.inventory import Subject
from provision.proxmox.preflight.reboot import reboot_unsafe
from provision.proxmox.reboot_facts import REBOOT_FACTS, RebootFacts, reboot_facts
from provision.proxmox.roles import hypervisor_host
from provision.testing.model_host import ModelFile, ModelHost
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic, Severity
from tests.unit.proxmox.roles.world import INVENTORY, World

PVE = Subject("hypervisor", "pve")
MAC = "aa:bb:cc:00:00:01"
INTERFACES = """\
auto lo
iface lo inet loopback
iface eno1 inet manual
auto vmbr0
iface vmbr0 inet static
        address 10.0.0.5/24
        bridge-ports eno1
        bridge-stp off
"""
LINK = f"[Match]\nMACAddress={MAC.upper()}\nType=ether\n[Link]\nName=nic0\n"
PINNED = "/usr/local/lib/systemd/network/50-pve-nic0.link"


def members(online: int, nodes: int, quorate: bool) -> str:
    listed = {f"pve{index}": {"id": index, "online": int(index < online)} for index in range(nodes)}
    cluster = {"name": "lab", "version": 3, "nodes": nodes, "quorate": int(quorate)}
    return json.dumps({"nodename": "pve", "version": 9, "cluster": cluster, "nodelist": listed})


def ha(**services: str) -> str:
    states = {f"vm:{name[1:]}": {"node": node, "state": "started"} for name, node in services.items()}
    return json.dumps({"master_node": "pve", "service_status": states})


class Home:
    """A hypervisor that has to reboot for its cards."""

    def __init__(self, folder: Path, text: str = INVENTORY) -> None:
        world = World(folder)
        world.write(text)
        self.inventory = load(folder / "site.yaml")
        self.state = world.host
        self.add("/etc/network/interfaces", INTERFACES)
        self.add("/sys/class/net/eno1/address", f"{MAC}\n")
        self.add("/sys/class/net/eno1/device", "")

    def add(self, path: str, text: str) -> None:
        self.state.files[path] = ModelFile(text.encode())

    def evidence(self) -> Evidence:
        host = ModelHost("pve/ssh", self.state)
        questions = hypervisor_host.questions(self.inventory, PVE)["pve/ssh"]
        asked = frozenset((*questions, *evidence(self.inventory)["pve/ssh"]))
        snapshot = host.answer(asked, Cancel())
        context = Context(self.inventory, PVE, {"pve/ssh": snapshot}, GeneratedValues(lambda: None))  # type: ignore[arg-type,return-value]  # none are made
        resources: list[Resource] = list(hypervisor_host.resources(context))
        more = host.answer(frozenset(ask(resources)), Cancel())
        merged = replace(more, answers={**snapshot.answers, **more.answers})
        return Evidence(self.inventory, {"pve/ssh": merged}, resources)

    def findings(self) -> dict[str, Diagnostic]:
        found = reboot_unsafe(self.evidence())
        return {each.code: each for each in found if isinstance(each, Diagnostic)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_host_alone_with_its_network_as_it_is_may_reboot(home: Home) -> None:
    assert reboot_unsafe(home.evidence()) == []


def test_without_a_reboot_nothing_is_looked_at(home: Home) -> None:
    home.add(PINNED, LINK)
    evidence = home.evidence()
    assert reboot_unsafe(evidence) != []
    assert reboot_unsafe(replace(evidence, resources=[])) == []


def test_a_reboot_that_an_earlier_run_owes_counts(home: Home) -> None:
    home.add(PINNED, LINK)
    evidence = home.evidence()
    snapshot = evidence.snapshots["pve/ssh"]
    owed = Pending(Effect(REBOOT_HYPERVISOR), snapshot.boot_id, "run")
    for pending, expected in ((owed, 1), (replace(owed, boot_id="another boot"), 0)):
        snapshots = {"pve/ssh": replace(snapshot, pending=(pending,))}
        assert len(reboot_unsafe(replace(evidence, resources=[], snapshots=snapshots))) == expected


@pytest.mark.parametrize(
    ("present", "nodes", "quorate", "severity"),
    [
        (3, 3, True, None),
        (2, 3, True, Severity.WARNING),
        (2, 2, True, Severity.WARNING),
        (1, 3, False, Severity.ERROR),
    ],
)
def test_the_cluster_needs_quorum_before_and_meanwhile(
    home: Home, present: int, nodes: int, quorate: bool, severity: Severity | None
) -> None:
    home.add("/etc/pve/.members", members(present, nodes, quorate))
    finding = home.findings().get("REBOOT_NO_QUORUM")
    assert (finding.severity if finding else None) == severity
    if finding:
        assert f"{present} of {nodes} nodes are online" in finding.evidence[0]


def test_a_quorum_device_is_a_vote(home: Home) -> None:
    home.add("/etc/pve/.members", members(2, 2, True))
    home.add("/etc/pve/corosync.conf", "quorum {\n  device {\n    model: net\n  }\n}\n")
    assert home.findings() == {}


def test_with_ha_resources_lost_quorum_makes_other_nodes_reset_themselves(home: Home) -> None:
    home.add("/etc/pve/.members", members(2, 2, True))
    home.add("/etc/pve/ha/manager_status", ha(v101="pve1"))
    finding = home.findings()["REBOOT_NO_QUORUM"]
    assert (finding.severity, "vm:101" in finding.summary) == (Severity.ERROR, True)
    assert "ha-manager set SID --state ignored" in finding.remedy


def test_ha_resources_on_the_host_are_named_with_the_maintenance_mode(home: Home) -> None:
    home.add("/etc/pve/.members", members(3, 3, True))
    home.add("/etc/pve/ha/manager_status", ha(v101="pve", v102="pve1"))
    finding = home.findings()["REBOOT_HA_RESOURCES"]
    assert (finding.severity, finding.evidence) == (Severity.WARNING, ("vm:101",))
    assert "node-maintenance enable pve" in finding.remedy


def test_a_pinned_name_that_the_bridge_does_not_have_is_refused(home: Home) -> None:
    home.add(PINNED, LINK)
    finding = home.findings()["REBOOT_NIC_RENAMED"]
    assert finding.severity is Severity.ERROR
    assert finding.evidence == ("eno1 of vmbr0 is nic0 after the next boot",)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/network/interfaces.new", INTERFACES.replace("eno1", "nic0")),
        (PINNED, LINK.replace("Name=nic0", "Name=eno1")),
        (PINNED, LINK.replace(MAC.upper(), "00:00:00:00:00:09")),
        (PINNED, LINK.replace("Name=nic0", "#Name=nic0")),
        ("/etc/systemd/network/10-own.link", LINK.replace("Name=nic0", "Name=eno1")),
    ],
    ids=["the new configuration has it", "the same name", "another card", "a comment", "an earlier file"],
)
def test_a_name_that_fits_is_no_problem(home: Home, path: str, text: str) -> None:
    home.add(PINNED, LINK)
    home.add(path, text)
    assert "REBOOT_NIC_RENAMED" not in home.findings()


def udev(home: Home, **names: str) -> None:
    """Give eno1 what udev knows of it."""
    home.add("/sys/class/net/eno1/ifindex", "2\n")
    rows = [f"E:ID_NET_NAME_{policy.upper()}={name}\n" for policy, name in names.items()]
    home.add("/run/udev/data/n2", "".join((*rows, "E:ID_PATH=pci-0000:01:00.0\n", "E:ID_NET_DRIVER=igc\n")))


OWN = "/etc/systemd/network/10-own.link"


@pytest.mark.parametrize(
    ("match", "link", "name"),
    [
        ("MACAddress=aa:bb:cc:00:00:01", "NamePolicy=keep kernel slot path", "enp1s0"),
        ("MACAddress=aa-bb-cc-00-00-01", "NamePolicy=slot\nName=lan0", "lan0"),
        ("Driver=e1000e igc", "Name=lan0", "lan0"),
        ("Path=pci-0000:01:*", "Name=lan0", "lan0"),
        ("Path=pci-0000:02:*", "Name=lan0", ""),
        ("OriginalName=*", "Name=lan0", ""),
        ("MACAddress=aa:bb:cc:00:00:01", "WakeOnLan=magic", "named by the kernel (eth0)"),
        ("MACAddress=aa:bb:cc:00:00:01", "NamePolicy=onboard", ""),
    ],
)
def test_what_a_link_file_does_to_a_port_is_followed(home: Home, match: str, link: str, name: str) -> None:
    udev(home, onboard="eno1", path="enp1s0")
    home.add(OWN, f"[Match]\n{match}\n[Link]\n{link}\n")
    finding = home.findings().get("REBOOT_NIC_RENAMED")
    expected = (f"eno1 of vmbr0 is {name} after the next boot",) if name else None
    assert (finding.evidence if finding else None) == expected


def test_names_by_policies_are_off_where_the_kernel_line_says_so(home: Home) -> None:
    udev(home, onboard="eno1", path="enp1s0")
    home.add("/proc/cmdline", "quiet net.ifnames=0\n")
    home.add(OWN, "[Match]\nType=ether\n[Link]\nNamePolicy=path\nName=eno1\n")
    assert "REBOOT_NIC_RENAMED" not in home.findings()


def test_an_alternative_name_that_a_pinning_takes_is_named(home: Home) -> None:
    udev(home, onboard="eno1", path="enp1s0")
    home.add("/etc/network/interfaces", INTERFACES.replace("eno1", "enp1s0"))
    assert "REBOOT_NIC_RENAMED" not in home.findings()
    home.add(PINNED, LINK)
    (line,) = home.findings()["REBOOT_NIC_RENAMED"].evidence
    assert line == "enp1s0 of vmbr0 is an alternative name of eno1, and is gone after the next boot"
    home.add(PINNED, f"{LINK}AlternativeNamesPolicy=path\n")
    assert "REBOOT_NIC_RENAMED" not in home.findings()


def test_a_newer_kernel_may_rename_ports_that_nothing_pins(home: Home) -> None:
    home.add("/proc/sys/kernel/osrelease", "6.8.12-4-pve\n")
    for release in ("6.8.12-4-pve", "6.8.4-2-pve", "6.14.8-2-pve"):
        home.add(f"/boot/vmlinuz-{release}", "")
    assert "REBOOT_NIC_UNPINNED" not in home.findings()  # eno1 is not known to follow from a place
    udev(home, onboard="eno1", path="enp1s0")
    finding = home.findings()["REBOOT_NIC_UNPINNED"]
    assert (finding.severity, finding.evidence) == (Severity.WARNING, ("eno1 of vmbr0",))
    assert "6.14.8-2-pve" in finding.summary
    assert "pve-network-interface-pinning generate" in finding.remedy
    home.add(PINNED, LINK.replace("Name=nic0", "Name=eno1"))
    assert home.findings() == {}


def test_a_network_configuration_that_waits_for_the_boot_is_named(home: Home) -> None:
    home.add("/etc/network/interfaces.new", INTERFACES)
    finding = home.findings()["REBOOT_NETWORK_PENDING"]
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "bond",
    [
        "iface bond0 inet manual\n  bond-slaves eno1 eno2\niface vmbr0 inet manual\n  bridge_ports bond0.1\n",
        "iface bond0 inet manual\n  ovs_bonds eno1 eno2\niface vmbr0 inet manual\n  ovs_ports bond0 vlan30\n",
        "iface eno1 inet manual\n  bond-master bond0\niface vmbr0 inet manual\n  bridge-ports bond0\n",
    ],
    ids=["slaves", "Open vSwitch", "masters"],
)
def test_bonds_and_vlans_are_followed_to_their_ports(home: Home, bond: str) -> None:
    home.add("/etc/network/interfaces", bond)
    home.add(PINNED, LINK)
    assert home.findings()["REBOOT_NIC_RENAMED"].evidence == ("eno1 of bond0 is nic0 after the next boot",)


def test_ports_of_a_bond_are_known_by_their_own_macs(home: Home) -> None:
    """All ports of a bond show the MAC of its first one (public reports of tools that pin names)."""
    home.add("/etc/network/interfaces", "iface bond0 inet manual\n  bond-slaves nic0 nic1\n")
    for number in (0, 1):
        own = MAC.replace(":01", f":0{number + 1}")
        home.add(f"/sys/class/net/nic{number}/address", f"{MAC}\n")
        home.add(f"/sys/class/net/nic{number}/bonding_slave/perm_hwaddr", f"{own}\n")
        home.add(f"/sys/class/net/nic{number}/device", "")
        link = LINK.replace(MAC.upper(), own.upper()).replace("nic0", f"nic{number}")
        home.add(PINNED.replace("nic0", f"nic{number}"), link)
    assert home.findings() == {}


@pytest.mark.parametrize("argument", ["net.ifnames=0", "net.naming-scheme=v252"])
def test_a_declared_argument_that_renames_interfaces_is_refused(tmp_path: Path, argument: str) -> None:
    text = INVENTORY.replace("    cards:", f"    kernel_arguments: [{argument}]\n    cards:", 1)
    finding = Home(tmp_path, text).findings()["REBOOT_NIC_RENAMED"]
    assert "eno1 of vmbr0" in finding.evidence[0]


def test_running_guests_of_others_are_named(home: Home) -> None:
    evidence = home.evidence()
    snapshot = evidence.snapshots["pve/ssh"]
    text = b"== nics\n== guests\nVM 101\nVM 900\ncontainer 901\n== votes\n== end\n"
    answers = {**snapshot.answers, REBOOT_FACTS: ShellResult(0, text, b"")}
    (finding,) = reboot_unsafe(replace(evidence, snapshots={"pve/ssh": replace(snapshot, answers=answers)}))
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.evidence) == ("REBOOT_STOPS_GUESTS", ("VM 900", "container 901"))


def test_what_was_not_read_is_unknown(home: Home) -> None:
    evidence = home.evidence()
    snapshot = evidence.snapshots["pve/ssh"]
    answers = {**snapshot.answers, REBOOT_FACTS: ShellResult(0, b"== /etc/pve/.members\n{", b"")}
    (finding,) = reboot_unsafe(replace(evidence, snapshots={"pve/ssh": replace(snapshot, answers=answers)}))
    assert isinstance(finding, UnknownYet)


def test_garbage_is_read_without_an_error() -> None:
    text = "== /etc/pve/.members\n[1]\n== /etc/pve/ha/manager_status\n"
    text += '{"service_status": [2]}\n== nics\nx\n== end\n'
    assert reboot_facts(text) == RebootFacts()
