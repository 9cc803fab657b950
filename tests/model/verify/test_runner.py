from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.inventory import Inventory
from provision.values.outcomes import ExitCode
from provision.verify import plugin
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from provision.verify.runner import run_checks

INVENTORY = """
version: 1
name: tiny
nodes:
  a: { address: 198.18.0.11, hostname: a, swap: off }
network: { cidr: 198.18.0.0/24 }
"""


class Host:
    """Answers some commands, and says *unknown* to all others."""

    def __init__(self, known: dict[str, str], away: str = "") -> None:
        self.known = known
        self.reason = away
        self.later: dict[str, str] = {}
        self.asked: list[str] = []
        self.answers: dict[Any, object] = {}
        self.trips = 0

    def held(self, system: str) -> Snapshot:
        return Snapshot(system, "boot", dict(self.answers) if system == "a/ssh" else {})

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        for system, queries in wanted.items():
            self.ask(system, queries)

    def away(self, system: str) -> str:
        return self.reason if system == "a/ssh" else ""

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        wanted = set(queries)
        missing = wanted if fresh else wanted - set(self.answers)
        self.trips += bool(missing)
        answers = self.answers
        for each in missing:
            assert isinstance(each, Shell)
            if fresh:
                self.known |= self.later
            self.asked.append(each.command)
            text = next((out for part, out in self.known.items() if part in each.command), None)
            answers[each] = Unknown("silence") if text is None else ShellResult(0, text.encode(), b"")
        return Snapshot(system, "boot", dict(answers))


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "tiny.yaml"
    path.write_text(INVENTORY)
    return load(path)


def by_name(report: VerifyReport) -> dict[str, CheckResult]:
    return {each.name: each for each in report.checks}


def test_what_is_seen_decides_and_silence_is_not_success(inventory: Inventory) -> None:
    host = Host(
        {
            "uname -n": "a",
            "uname -s": "Linux",
            "uname -m": "x86_64",
            "/etc/os-release": "ID=debian\n",
            "/etc/hostname": "b\n",
            "systemctl list-units": "",
            "ip -o -4": "198.18.0.11/24",
        }
    )
    report = run_checks(inventory, host, check_folders())
    checks = by_name(report)
    assert (
        checks["The host name is the declared one, now and at boot, and /etc/hosts names it"].outcome
        is CheckOutcome.FAILED
    )
    assert (
        checks["No unit that is declared or managed has failed; others are named"].outcome
        is CheckOutcome.PROVEN
    )
    assert checks["The node holds its declared address"].outcome is CheckOutcome.PROVEN
    assert checks["No swap is in use"].outcome is CheckOutcome.UNKNOWN
    assert "silence" in checks["No swap is in use"].message
    assert report.exit_code(strict=False) is ExitCode.VERIFY_FAILED


def test_first_verification_batches_its_commands_in_few_round_trips(inventory: Inventory) -> None:
    known = {"uname -n": "a", "uname": "Linux", "os-release": "ID=debian\n", "hostname": "a\n", "": ""}
    host = Host(known)
    run_checks(inventory, host, check_folders())
    assert len(host.asked) >= 8
    assert len(host.asked) == len(set(host.asked)), "nothing is asked twice"
    assert host.trips <= 5
    trips = host.trips
    run_checks(inventory, host, check_folders())
    assert host.trips == trips, "what is at hand is not asked again"


def test_what_is_not_declared_is_no_check(inventory: Inventory) -> None:
    names = by_name(run_checks(inventory, Host({}), check_folders()))
    assert "The clock follows a time server" not in names
    assert "The machine type is the declared one" not in names


def test_a_node_that_is_off_by_hand_is_excused(inventory: Inventory) -> None:
    host = Host({}, away="a is off by hand")
    report = run_checks(inventory, host, check_folders(), excused=frozenset({"a"}))
    assert {each.outcome for each in report.checks} == {CheckOutcome.UNKNOWN}
    assert all("off by hand" in each.message for each in report.checks)
    assert report.exit_code(strict=True) is ExitCode.DONE
    assert run_checks(inventory, host, check_folders()).exit_code(strict=True) is ExitCode.UNKNOWN


def test_no_check_at_all_proves_nothing() -> None:
    assert VerifyReport(()).exit_code(strict=True) is ExitCode.UNKNOWN
    assert VerifyReport(()).exit_code(strict=False) is ExitCode.DONE


@pytest.mark.parametrize(
    ("later", "outcome"),
    [
        ("Leap status     : Normal\n", CheckOutcome.PROVEN),
        ("Leap status     : Not synchronised\n", CheckOutcome.FAILED),
    ],
)
def test_a_restarted_time_daemon_gets_time_to_synchronise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str, outcome: CheckOutcome
) -> None:
    monkeypatch.setattr(plugin, "PAUSE", 0.001)
    monkeypatch.setattr(plugin, "SETTLING", 0.05)
    path = tmp_path / "ntp.yaml"
    path.write_text(INVENTORY.replace("swap: off", "ntp: [198.18.0.1]"))
    host = Host({"NTPSynchronized": "no\n", "chronyc": "Leap status     : Not synchronised\n"})
    host.later = {"chronyc": later}
    check = by_name(run_checks(load(path), host, check_folders()))["The clock follows a time server"]
    assert check.outcome is outcome
