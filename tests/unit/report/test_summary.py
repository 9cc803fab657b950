from __future__ import annotations

from dataclasses import replace

import pytest

from provision.contracts import common_effects
from provision.contracts.change import Key
from provision.contracts.effect import Effect
from provision.engine.model import ConsentNeed, PlannedChange, RunReport, StepId, StepReport
from provision.report.run_summary import next_commands, print_summary
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import Outcome
from tests.unit.report.samples import REBOOT, shown

COMMAND = "provision apply lab"


def ended(role: str, subject: str, outcome: Outcome, seconds: float = 0.0, reason: str = "") -> StepReport:
    return StepReport(StepId(role, subject), outcome, seconds, reason=reason)


CHANGE = PlannedChange(Key("vm-1/ssh", "file", "/etc/motd"), ())
FAILED = replace(
    ended("base_os", "vm-1", Outcome.FAILED, 42.0, "there is no package foo"),
    changed=(CHANGE, CHANGE),
    diagnostics=(
        Diagnostic("PACKAGE_MISSING", "there is no package foo", "vm-1", remedy="name another one"),
    ),
)
REPORT = RunReport(
    "r1",
    "lab",
    (
        ended("hypervisor_host", "pve", Outcome.CHANGED, 125.0),
        ended("image", "pve", Outcome.UNCHANGED, 0.2),
        FAILED,
        ended("k3s_agent", "vm-1", Outcome.BLOCKED, reason="vm-1: base_os failed"),
        *(ended("base_os", f"n{number}", Outcome.UNREACHED, reason="no answer") for number in range(8)),
        ended("pci_mapping", "pve", Outcome.WAITING, reason="reboot-hypervisor waits for consent"),
    ),
    consents_missing=(
        ConsentNeed("pve/ssh", REBOOT, Consent.ASK),
        ConsentNeed("pve/api", Effect(common_effects.DELETE, "vm-9"), Consent.NEVER),
    ),
    trips={"pve/ssh": 2, "pve/api": 5},
    seconds=190.0,
    exit_code=1,
)


def test_the_summary_names_the_outcome_of_every_step() -> None:
    text = shown(lambda console: print_summary(console, REPORT, command=COMMAND), width=100)
    assert text.splitlines() == [
        "error PACKAGE_MISSING  vm-1",
        "  there is no package foo",
        "  next: name another one",
        "",
        "  failed    vm-1: base_os",
        "  waiting   pve: pci_mapping: reboot-hypervisor waits for consent",
        "  blocked   vm-1: k3s_agent: vm-1: base_os failed",
        f"  unreached {', '.join(f'n{number}: base_os' for number in range(6))} and 2 more",
        "            steps: no answer",
        "  reboot-hypervisor of pve waits for consent: give --allow reboot-hypervisor",
        "  delete of vm-9 (pve) waits for consent: the policy of the inventory says never",
        "",
        "Ended after 3 min 10 s: 2 done (1 changed), 1 failed (after 2 changes), 1 waiting, 1 blocked, 8",
        "  unreached (run r1)",
        "Slowest: pve: hypervisor_host 2 min 05 s, vm-1: base_os 42 s",
        "Next: See the whole output:",
        "  provision show r1 --full",
        "Next: After the correction, run it again. It resumes where this run ended:",
        "  provision apply lab",
    ]


def test_round_trips_are_for_those_who_debug() -> None:
    text = shown(lambda console: print_summary(console, REPORT, command=COMMAND, debug=True))
    assert "Round trips: pve/api 5, pve/ssh 2" in text


GOOD = RunReport("r1", "lab", (ended("image", "pve", Outcome.UNCHANGED),))


@pytest.mark.parametrize(
    ("report", "command", "following"),
    [
        (GOOD, COMMAND, ["provision verify lab"]),
        (GOOD, "provision destroy lab", []),
        (replace(GOOD, exit_code=130, interrupted=True), COMMAND, [COMMAND]),
        (
            replace(GOOD, exit_code=5, consents_missing=REPORT.consents_missing),
            COMMAND,
            [f"{COMMAND} --allow reboot-hypervisor"],
        ),
        (replace(GOOD, exit_code=5, consents_missing=REPORT.consents_missing[1:]), COMMAND, [COMMAND]),
        (replace(GOOD, exit_code=3), COMMAND, ["provision verify lab"]),
    ],
)
def test_the_summary_names_the_next_command(report: RunReport, command: str, following: list[str]) -> None:
    assert [line for _, line in next_commands(report, command)] == following


def test_the_next_command_is_a_whole_line_on_a_narrow_terminal() -> None:
    command = f"provision apply {'/very/long/folder' * 8}/lab.yaml"
    text = shown(lambda console: print_summary(console, REPORT, command=command), width=60)
    assert f"  {command}" in text.splitlines()
