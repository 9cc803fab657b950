"""Checks claim what roles bring about, and nothing else: an apply that did all it can is not failed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.inventory import Inventory
from provision.values.outcomes import ExitCode
from provision.verify.claims import check_names
from provision.verify.model import CheckOutcome
from provision.verify.runner import run_checks, subjects
from tests.model.verify.test_cards import INVENTORY as CARDS
from tests.model.verify.test_cards import Machines, check, sysfs

NODE = """
version: 1
name: tiny
vars: { app: web }
nodes:
  a:
    address: 198.18.0.11
    hostname: a
    host_resources:
      - { kind: service, name: "{{ app }}", running: true, enabled: true }
      - { kind: file, path: /etc/app, content: x, restart: [worker] }
network: { cidr: 198.18.0.0/24 }
"""
UNITS = "No unit that is declared or managed has failed; others are named"
HOST_UNITS = "No unit of the hypervisor that is declared has failed; others are named"
SERVICES = "Every declared service runs and is enabled as declared"
DRIVERS = "Every display function of a declared card is with vfio-pci or without a driver"
ARGUMENTS = "The running kernel was booted with the declared arguments and the blacklist of the cards"
NEXT_BOOT = "No module that would drive a declared display function may be loaded at the next boot"
BALLOON = "Ballooning is as declared; off with a passed-through card"
RESERVED = "The router holds exactly one reservation of the address, for the machine's own MAC"
RUNS = "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"


class Told:
    """Systems that answer the commands that hold a text, and say *unknown* to others."""

    def __init__(self, known: Mapping[str, str], rc: int = 0) -> None:
        self.known = known
        self.rc = rc
        self.asked: list[str] = []
        self.answers: dict[str, dict[Any, object]] = {}

    def away(self, system: str) -> str:
        del system
        return ""

    def held(self, system: str) -> Snapshot:
        return Snapshot(system, "boot", dict(self.answers.get(system, {})))

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        for system, queries in wanted.items():
            self.ask(system, queries)

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        del fresh
        for each in queries:
            self.answers.setdefault(system, {})[each] = self.answer(system, each)
        return self.held(system)

    def answer(self, system: str, query: object) -> object:
        del system
        if isinstance(query, ApiGet) and query.path.endswith("/pending"):
            return ApiReply(200, "[]")
        if not isinstance(query, Shell):
            return Unknown("silence")
        self.asked.append(query.command)
        text = next((out for part, out in self.known.items() if part in query.command), None)
        return Unknown("silence") if text is None else ShellResult(self.rc, text.encode(), b"")


def inventory_of(folder: Path, text: str) -> Inventory:
    path = folder / "tiny.yaml"
    path.write_text(text)
    return load(path)


# ------------------------------------------------------------ what is not managed


def test_of_what_is_not_managed_nothing_is_claimed(tmp_path: Path) -> None:
    text = CARDS.replace("gpus: [one, two] }", "gpus: [one, two], manage: false }")
    inventory = inventory_of(
        tmp_path, text.replace("    bridge: vmbr0\n", "    bridge: vmbr0\n    manage: false\n")
    )
    assert not any(subjects(inventory).values())
    assert run_checks(inventory, Told({}), check_folders()).checks == ()
    assert "vm" in subjects(inventory_of(tmp_path, CARDS))["gpu_vm"]


def test_a_clock_that_nobody_sets_is_no_claim(tmp_path: Path) -> None:
    names = {each.name for each in run_checks(inventory_of(tmp_path, NODE), Told({}), check_folders()).checks}
    assert UNITS in names
    assert "The clock agrees with the controller's within ten seconds" not in names


# ------------------------------------------------------------ cards and the kernel's arguments


@pytest.mark.parametrize(
    ("cls", "driver", "outcome"),
    [
        ("0x040300", "snd_hda_intel", CheckOutcome.PROVEN),
        ("0x0c0330", "xhci_hcd", CheckOutcome.PROVEN),
        ("0x030000", "nouveau", CheckOutcome.FAILED),
        ("0x120000", "nouveau", CheckOutcome.FAILED),
    ],
)
def test_only_display_functions_are_kept_from_host_drivers(
    tmp_path: Path, cls: str, driver: str, outcome: CheckOutcome
) -> None:
    sysfs(
        tmp_path,
        ("0000:01:00.0", "0x030000", "", 7),
        ("0000:01:00.1", cls, driver, 7),
        ("0000:02:00.0", "0x030000", "vfio-pci", 8),
    )
    assert check(inventory_of(tmp_path, CARDS), Machines(tmp_path, {}), DRIVERS).outcome is outcome


@pytest.mark.parametrize(
    ("cmdline", "outcome"),
    [
        ("ro modprobe.blacklist=bochs_drm,pcspkr quiet", CheckOutcome.PROVEN),
        ("ro modprobe.blacklist=bochs-drm modprobe.blacklist=pcspkr quiet", CheckOutcome.PROVEN),
        ("ro modprobe.blacklist=bochs_drm quiet", CheckOutcome.FAILED),
        ("ro modprobe.blacklist=pcspkr quiet", CheckOutcome.FAILED),
        ("ro modprobe.blacklist=bochs_drm,pcspkr", CheckOutcome.FAILED),
    ],
)
def test_arguments_that_the_role_unites_count_in_any_order(
    tmp_path: Path, cmdline: str, outcome: CheckOutcome
) -> None:
    wanted = "    kernel_arguments: [modprobe.blacklist=pcspkr, quiet]\n"
    text = CARDS.replace("    bridge: vmbr0\n", f"    bridge: vmbr0\n{wanted}")
    known = {
        "50-provision.cfg": "case x in *' modprobe.blacklist=bochs_drm'*) ;; esac\n",
        "/proc/cmdline": cmdline,
        "modprobe -qR": "",
    }
    assert check(inventory_of(tmp_path, text), Told(known), ARGUMENTS).outcome is outcome


@pytest.mark.parametrize(
    ("cmdline", "outcome"),
    [
        ('ro kvm_intel.nested=1 "dyndbg=file a +p" intel_iommu=on,igfx_off', CheckOutcome.PROVEN),
        ("intel_iommu=on kvm-intel.nested=1 dyndbg=file a +p", CheckOutcome.FAILED),
        ('intel_iommu=on dyndbg="file a +p" -- kvm-intel.nested=1', CheckOutcome.FAILED),
    ],
)
def test_arguments_count_in_every_spelling_of_the_kernel(
    tmp_path: Path, cmdline: str, outcome: CheckOutcome
) -> None:
    wanted = """    kernel_arguments: [kvm-intel.nested=1, 'dyndbg="file a +p"', intel_iommu=on]\n"""
    text = CARDS.replace("    bridge: vmbr0\n", f"    bridge: vmbr0\n{wanted}")
    known = {"50-provision.cfg": "", "/proc/cmdline": cmdline, "modprobe -qR": ""}
    assert check(inventory_of(tmp_path, text), Told(known), ARGUMENTS).outcome is outcome


def test_cards_whose_drivers_need_no_blacklist_need_no_argument(tmp_path: Path) -> None:
    known = {"50-provision.cfg": "", "/proc/cmdline": "ro", "modprobe -qR": ""}
    assert check(inventory_of(tmp_path, CARDS), Told(known), ARGUMENTS).outcome is CheckOutcome.TRIVIAL


@pytest.mark.parametrize(
    ("ours", "outcome"), [("blacklist bochs\n", CheckOutcome.FAILED), ("", CheckOutcome.TRIVIAL)]
)
def test_our_list_keeps_off_no_driver_of_a_card_given_by_its_address(
    tmp_path: Path, ours: str, outcome: CheckOutcome
) -> None:
    known = {
        "provision-cards.conf": ours,
        "&& modprobe -qR": "bochs\n",
        "|| modprobe -qR": "",
        "modprobe -c": ours,
    }
    assert check(inventory_of(tmp_path, CARDS), Told(known), NEXT_BOOT).outcome is outcome


# ------------------------------------------------------------ VMs


@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        ({"memory": "2048"}, CheckOutcome.PROVEN),
        ({"memory": "current=2048"}, CheckOutcome.PROVEN),
        ({"memory": "4096", "balloon": "2048"}, CheckOutcome.PROVEN),
        ({"memory": "2048", "balloon": "1024"}, CheckOutcome.FAILED),
        ({"memory": "4096"}, CheckOutcome.FAILED),
    ],
)
def test_a_balloon_that_is_not_set_is_the_memory_as_the_plan_says(
    tmp_path: Path, config: dict[str, str], outcome: CheckOutcome
) -> None:
    text = CARDS.replace("gpus: [one, two]", "balloon: 2GiB")
    result = check(inventory_of(tmp_path, text), Machines(tmp_path, config), BALLOON)
    assert result.outcome is outcome, result.message


# ------------------------------------------------------------ units


@pytest.mark.parametrize("unit", ["web.service", "worker.service"])
def test_a_declared_unit_that_failed_fails_the_site(tmp_path: Path, unit: str) -> None:
    known = {"systemctl list-units": f"{unit} loaded failed failed Something\n"}
    result = check(inventory_of(tmp_path, NODE), Told(known), UNITS)
    assert (result.outcome, unit in result.message) == (CheckOutcome.FAILED, True)


@pytest.mark.parametrize(("text", "name"), [(NODE, UNITS), (CARDS, HOST_UNITS)])
def test_a_foreign_unit_that_failed_is_told_and_fails_nothing(tmp_path: Path, text: str, name: str) -> None:
    known = {"systemctl list-units": "other.service loaded failed failed Something\n"}
    result = check(inventory_of(tmp_path, text), Told(known), name)
    assert (result.outcome, "other.service" in result.message) == (CheckOutcome.PROVEN, True)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (RUNS, CheckOutcome.PROVEN),
        (RUNS.replace("=enabled", "=static"), CheckOutcome.PROVEN),
        (RUNS.replace("=active", "=failed"), CheckOutcome.FAILED),
        (RUNS.replace("=enabled", "=disabled"), CheckOutcome.FAILED),
    ],
)
def test_services_are_looked_for_by_their_rendered_names(
    tmp_path: Path, status: str, outcome: CheckOutcome
) -> None:
    told = Told({"web.service": status})
    assert check(inventory_of(tmp_path, NODE), told, SERVICES).outcome is outcome
    assert not [each for each in told.asked if "{{" in each]


# ------------------------------------------------------------ reservations


class Router(Told):
    """A router whose /etc and /srv are folders here."""

    def __init__(self, root: Path) -> None:
        super().__init__({"ip -o": "52:54:00:00:00:01\n"})
        self.root = root

    def answer(self, system: str, query: object) -> object:
        if system != "router" or not isinstance(query, Shell) or "grep" not in query.command:
            return super().answer(system, query)
        script = query.command.replace("/etc/", f"{self.root}/etc/").replace("/srv/", f"{self.root}/srv/")
        result = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
        return ShellResult(result.returncode, result.stdout, result.stderr)


@pytest.mark.parametrize("folder", ["/etc/dnsmasq.d/hosts", "/srv/hosts"])
def test_a_reservation_is_found_where_the_role_writes_it(tmp_path: Path, folder: str) -> None:
    where = "" if folder.startswith("/etc") else f", file: {folder}"
    dhcp = f"dhcp: {{ backend: dnsmasq, address: 198.18.0.1, ssh: {{}}{where} }}"
    text = CARDS.replace("cidr: 198.18.0.0/24", f"cidr: 198.18.0.0/24, {dhcp}")
    place = tmp_path / folder.lstrip("/")
    place.mkdir(parents=True)
    (place / "provision-tiny-vm").write_text("52:54:00:00:00:01,198.18.0.11,vm\n")
    (place / ".half").write_text("52:54:00:00:00:09,198.18.0.11,vm\n")
    inventory = inventory_of(tmp_path, text)
    result = check(inventory, Router(tmp_path), RESERVED)
    assert result.outcome is CheckOutcome.PROVEN, result.message
    (place / "another").write_text("52:54:00:00:00:02,198.18.0.11,x\n")
    assert check(inventory, Router(tmp_path), RESERVED).outcome is CheckOutcome.FAILED


# ------------------------------------------------------------ verify.skip and verify.timeout


def test_a_skipped_check_is_not_asked_and_is_no_fault(tmp_path: Path) -> None:
    known = {"systemctl list-units": "web.service loaded failed failed Something\n"}
    inventory = inventory_of(tmp_path, NODE + "verify: { skip: [test_no_unit_has_failed] }\n")
    told = Told(known)
    report = run_checks(inventory, told, check_folders())
    (result,) = [each for each in report.checks if each.name == UNITS]
    assert (result.outcome, result.excused) == (CheckOutcome.NOT_RUN, True)
    assert "verify.skip" in result.message
    assert not [each for each in told.asked if "list-units" in each]
    assert report.exit_code(strict=False) is ExitCode.DONE


def test_the_names_that_can_be_skipped_are_those_of_the_checks() -> None:
    assert {"test_clock", "test_no_unit_has_failed", "test_it_is_marked"} <= check_names(check_folders())


def test_a_command_that_takes_too_long_is_unknown(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, NODE + "verify: { timeout: 7 }\n")
    told = Told({"systemctl list-units": ""}, rc=124)
    result = check(inventory, told, UNITS)
    assert result.outcome is CheckOutcome.UNKNOWN
    assert "longer than 7 s" in result.message
    assert all(each.startswith("timeout -k 2 7 sh -c ") for each in told.asked)
    assert check(inventory, Told({"systemctl list-units": ""}), UNITS).outcome is CheckOutcome.PROVEN


# ------------------------------------------------------------ a driver without a card


@pytest.mark.parametrize(
    ("module", "outcome"), [("535.309.01\n", CheckOutcome.PROVEN), ("", CheckOutcome.FAILED)]
)
def test_without_a_card_the_module_of_the_next_boot_is_that_of_the_library(
    tmp_path: Path, module: str, outcome: CheckOutcome
) -> None:
    text = "version: 1\nname: tiny\nnodes:\n  a: { address: 198.18.0.11, driver: { origin: debian } }\n"
    known = {
        "/sys/bus/pci": "",
        "modinfo -k": f"6.1.0-57-amd64\n{module}",
        "libnvidia-ml": "535.309.01\n",
    }
    inventory = inventory_of(tmp_path, text)
    checks = {one.check: one for one in run_checks(inventory, Told(known), check_folders()).checks}
    assert checks["test_gpu_driver_at_next_boot"].outcome is outcome
    bound = checks["test_gpu_driver_is_bound"]
    assert (bound.outcome, "declare gpu_cards" in bound.message) == (CheckOutcome.UNKNOWN, True)
    assert checks["test_gpu_driver_version"].outcome is CheckOutcome.TRIVIAL
