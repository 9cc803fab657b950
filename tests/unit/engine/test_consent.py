"""What protects a site: consent by class, fresh looks before what is final, and no verdict without proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import saved_plan
from provision.api.domains import effect_classes
from provision.contracts import common_effects
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.role import Parent
from provision.contracts.rule import Evidence
from provision.contracts.system import SystemSpec
from provision.engine.consent import Consents
from provision.engine.environment import Options, Verification
from provision.hosts import host_effects
from provision.inventory.playbook import Entry
from provision.proxmox import vm_effects
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import (
    FakeRole,
    FakeSite,
    born_on,
    here,
    on_own,
    own,
)

REPLACE, CYCLE = Effect(common_effects.REPLACE, "vm"), Effect(vm_effects.POWER_CYCLE, "vm")
HARMLESS = {"daemon-reload", "initramfs", "boot-loader", "reload", "restart"}
"""What a policy without a word allows."""
LOSS = Effect(common_effects.DELETE, "n1")


def consents(
    *, never: bool = False, allow: frozenset[str] = frozenset(), everything: bool = False
) -> Consents:
    return Consents(
        lambda cls: Consent.NEVER if never else cls.default_consent,
        allow,
        lambda _: "n1",
        frozenset({"n1"}),
        everything,
    )


@pytest.mark.parametrize("cls", effect_classes().values())
def test_each_class_may_be_asked_for_allowed_and_forbidden(cls: EffectClass) -> None:
    effect = Effect(cls)
    assert consents().of("n1/ssh", effect) is (Consent.ALLOW if cls.name in HARMLESS else Consent.ASK)
    assert consents(allow=frozenset({cls.name})).of("n1/ssh", effect) is Consent.ALLOW
    assert consents(never=True, allow=frozenset({cls.name})).of("n1/ssh", effect) is Consent.NEVER


@pytest.mark.parametrize("cls", effect_classes().values())
def test_destroy_consents_to_all_but_reboots(cls: EffectClass) -> None:
    expected = Consent.NEVER if cls.reboots else Consent.ALLOW
    assert consents(never=True, everything=True).of("n1/ssh", Effect(cls)) is expected


@pytest.mark.parametrize(
    "cls", [each for each in effect_classes().values() if each.default_consent is Consent.ASK]
)
def test_a_risk_that_is_never_allowed_touches_nothing(cls: EffectClass, tmp_path: Path) -> None:
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", risks=(Effect(cls, "n1"),))], on_own())
    site = FakeSite([role], policy={cls: Consent.NEVER}, state=tmp_path)
    report = site.apply(Options(allow=frozenset({cls.name})), ask=lambda _: True)
    assert report.exit_code == ExitCode.WAITING
    assert site.hosts["n1/ssh"].acts == 0


def replacing(tmp_path: Path) -> FakeSite:
    """A guest that is to be made anew, and something else whose mending cycles its power."""
    role = FakeRole(
        "machine",
        lambda _: [
            Item("pve/api", "other", "1", risks=(CYCLE,)),
            Item("pve/api", "vm", "new", risks=(REPLACE,), replaces=True, makes="vm"),
        ],
        lambda _: {"pve/api": (Value("vm"),)},
        subjects=frozenset({"vm"}),
    )
    return FakeSite(
        [FakeRole("prepare", own(host="1"), on_own(), subjects=frozenset({"pve"})), role],
        subjects=("pve", "vm"),
        hosts={"pve/api": Host({"vm": "old"}, is_api=True)},
        specs={
            "pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here),
            "vm/ssh": SystemSpec(
                "vm/ssh", "host", "vm", {"pve/api": (Value("vm"),)}, born_on("pve/api", "vm")
            ),
        },
        parents={"vm": (Parent("pve"),)},
        state=tmp_path,
    )


def test_what_may_not_be_replaced_is_protected_like_all_that_was_there(tmp_path: Path) -> None:
    site = replacing(tmp_path)
    risks = {risk.effect: risk.consent for risk in site.plan().plan.risks}
    assert risks == {REPLACE: Consent.ASK, CYCLE: Consent.ASK}
    report = site.apply()
    assert report.exit_code == ExitCode.WAITING
    assert site.hosts["pve/api"].values == {"vm": "old"}


def test_what_may_be_replaced_needs_no_further_consent(tmp_path: Path) -> None:
    site = replacing(tmp_path)
    risks = site.plan(Options(allow=frozenset({common_effects.REPLACE.name}))).plan.risks
    assert {risk.effect: risk.consent for risk in risks} == {REPLACE: Consent.ALLOW, CYCLE: Consent.ALLOW}


def test_what_is_called_like_a_silent_guest_is_not_its_birth(tmp_path: Path) -> None:
    role = FakeRole(
        "machine",
        lambda _: [Item("router", "vm", "reserved"), Item("pve/api", "cores", "4", risks=(CYCLE,))],
        lambda _: {"pve/api": (Value("vm"),), "router": ()},
        subjects=frozenset({"vm"}),
    )
    site = FakeSite(
        [role],
        subjects=("pve", "vm"),
        hosts={
            "pve/api": Host({"vm": "there"}, is_api=True),
            "router": Host(),
            "vm/ssh": Host(down=True),
        },
        specs={
            "pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here),
            "router": SystemSpec("router", "host", "router", {}, here),
            "vm/ssh": SystemSpec("vm/ssh", "host", "vm", {}, here),
        },
        policy={vm_effects.POWER_CYCLE: Consent.NEVER},
        state=tmp_path,
    )
    assert [risk.consent for risk in site.plan().plan.risks] == [Consent.NEVER]
    report = site.apply(Options(allow=frozenset({vm_effects.POWER_CYCLE.name})))
    assert report.exit_code == ExitCode.WAITING
    assert site.hosts["router"].values == {"vm": "reserved"}
    assert "cores" not in site.hosts["pve/api"].values


def test_what_is_final_is_looked_at_once_more_right_before(tmp_path: Path) -> None:
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "gone", risks=(LOSS,))], on_own())
    site = FakeSite([role], hosts={"n1/ssh": Host({"a": "mine"})}, state=tmp_path)
    allowed = Options(allow=frozenset({common_effects.DELETE.name}))
    planned = site.plan(allowed)
    site.hosts["n1/ssh"].values["a"] = "gone"  # while a person read the plan
    report = site.apply(allowed, planned=planned)
    assert report.exit_code == ExitCode.DONE
    assert site.hosts["n1/ssh"].acts == 0


def test_destroy_pays_no_reboot_that_an_apply_left_owing(tmp_path: Path) -> None:
    role = FakeRole("r", own(a="1"), on_own(), gone=lambda _: [Item("n1/ssh", "a", "gone")])
    owing = {Effect(host_effects.REBOOT_NODE): "boot-1", Effect(host_effects.RESTART, "x.service"): "boot-1"}
    site = FakeSite([role], hosts={"n1/ssh": Host({"a": "1"}, pending=owing)}, state=tmp_path)
    report = site.apply(destroying=True)
    assert report.exit_code == ExitCode.DONE
    host = site.hosts["n1/ssh"]
    assert (host.reboots, host.restarted, host.values) == (0, ["restart x.service"], {"a": "gone"})


def test_a_promise_is_the_same_with_a_consent_that_comes_later(tmp_path: Path) -> None:
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "gone", risks=(LOSS,))], on_own())
    site = FakeSite([role], hosts={"n1/ssh": Host({"a": "mine"})}, state=tmp_path)

    def content(options: Options) -> dict[str, object]:
        planned = site.plan(options)
        assert site.session is not None
        digests = saved_plan.Digests(lambda: b"key")
        return saved_plan.content(planned, "digest", site.session.snapshots(), digests)

    saved_plan.check(content(Options()), content(Options(allow=frozenset({common_effects.DELETE.name}))))


# ---------------------------------------------------------------- what is claimed at the end


class Checks:
    """A verification that counts how often it is asked."""

    def __init__(self, code: ExitCode = ExitCode.DONE) -> None:
        self.code = code
        self.runs = 0

    def __call__(self, _cancel: Cancel) -> Verification:
        self.runs += 1
        return Verification(self.code, "said")


def verified(role: FakeRole, tmp_path: Path, checks: Checks, *, gate: str = "") -> FakeSite:
    return FakeSite(
        [role], entries=(Entry("r", ("all",)), Entry("verify", gate=gate)), state=tmp_path, verify=checks
    )


def test_a_site_with_a_failed_step_is_not_verified(tmp_path: Path) -> None:
    checks = Checks(ExitCode.VERIFY_FAILED)
    site = verified(FakeRole("r", own(a="1"), on_own()), tmp_path, checks)
    site.hosts["n1/ssh"].refuses = frozenset({"a"})
    report = site.apply()
    assert (report.exit_code, checks.runs) == (ExitCode.ERROR, 0)
    assert str(report.steps[-1].outcome) == "blocked"
    assert report.steps[-1].reason.startswith("not verified: 1 step failed")


def test_a_site_that_waits_for_consent_is_not_verified(tmp_path: Path) -> None:
    checks = Checks(ExitCode.VERIFY_FAILED)
    boots = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", boots=host_effects.REBOOT_NODE)], on_own())
    report = verified(boots, tmp_path, checks).apply()
    assert (report.exit_code, checks.runs) == (ExitCode.WAITING, 0)
    assert report.steps[-1].reason.startswith("not verified: 1 step waiting")


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.VERIFY_FAILED, ExitCode.UNKNOWN])
def test_a_run_ends_with_what_its_verification_says(code: ExitCode, tmp_path: Path) -> None:
    checks = Checks(code)
    assert verified(FakeRole("r", own(a="1"), on_own()), tmp_path, checks).apply().exit_code == code
    assert checks.runs == 1


def test_a_gate_holds_the_verification_too(tmp_path: Path) -> None:
    checks = Checks()
    site = verified(FakeRole("r", own(a="1"), on_own()), tmp_path, checks, gate="Quiet?")
    assert (site.apply().exit_code, checks.runs) == (ExitCode.WAITING, 0)
    assert (site.apply(ask=lambda text: text == "Quiet?").exit_code, checks.runs) == (ExitCode.DONE, 1)


def test_a_step_that_was_told_to_end_half_way_is_not_done(tmp_path: Path) -> None:
    role = FakeRole(
        "r",
        lambda _: [Item("pve/api", "a", "1"), Item("pve/api", "b", "1")],
        lambda _: {"pve/api": ()},
        subjects=frozenset({"pve"}),
    )
    spec = SystemSpec("pve/api", "proxmox", "pve", {}, here)
    site = FakeSite(
        [role],
        subjects=("pve",),
        hosts={"pve/api": Host(is_api=True)},
        specs={"pve/api": spec},
        state=tmp_path,
    )
    cancel = Cancel()
    site.on_set = lambda *_: cancel.drain()
    report = site.apply(cancel=cancel)
    assert (report.exit_code, site.outcomes(report)) == (ExitCode.INTERRUPTED, {"pve: r": "failed"})
    assert site.hosts["pve/api"].values == {"a": "1"}
    assert site.apply().exit_code == ExitCode.DONE


def test_the_time_of_a_run_counts_its_planning(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], state=tmp_path)
    planned = site.plan()
    assert planned.seconds > 0
    planned.seconds = 100.0
    assert site.apply(planned=planned).seconds >= planned.seconds


@pytest.mark.parametrize(("subject", "outcome"), [("n2", "changed"), ("n1", "failed")])
def test_late_step_is_refused_by_its_own_diagnostics_only(subject: str, outcome: str, tmp_path: Path) -> None:
    first = FakeRole(
        "first", lambda _: [Item("n1/ssh", "a", "1", boots=host_effects.REBOOT_NODE)], on_own(),
        subjects=frozenset({"n1"}),
    )  # fmt: skip
    later = FakeRole("later", own(b="1"), on_own(), subjects=frozenset({"n1"}), needs_new_boot=True)
    there = FakeRole("there", own(c="1"), on_own(), subjects=frozenset({"n2"}))
    site = FakeSite(
        [first, later, there],
        subjects=("n1", "n2"),
        policy={host_effects.REBOOT_NODE: Consent.ALLOW},
        state=tmp_path,
    )

    def rules(evidence: Evidence) -> list[Diagnostic]:
        snapshots = evidence.snapshots
        booted = "n1/ssh" in snapshots and snapshots["n1/ssh"].boot_id == "boot-2"
        return [Diagnostic("FOUND_LATE", "wrong", subject)] if booted else []

    site.rules = rules
    assert site.outcomes(site.apply())["n1: later"] == outcome


def test_a_site_with_a_host_that_was_not_reached_is_not_verified(tmp_path: Path) -> None:
    checks = Checks(ExitCode.DONE)
    site = verified(FakeRole("r", own(a="1"), on_own()), tmp_path, checks)
    site.hosts["n1/ssh"].down = True
    report = site.apply()
    assert (report.exit_code, checks.runs) == (ExitCode.ERROR, 0)
    assert str(report.steps[-1].outcome) == "blocked"
    assert report.steps[-1].reason.startswith("not verified: 1 step unreached")
