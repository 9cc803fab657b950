"""Each kind of declared thing is damaged on a site in memory: the check of that name turns red."""

from __future__ import annotations

import pytest

from provision.api import Options
from provision.api.domains import check_folders
from provision.values.events import RunEnded
from provision.values.outcomes import ExitCode
from provision.verify.claims import check_names
from provision.verify.model import CheckOutcome, VerifyReport
from tests.model.model_site import ModelSite
from tests.model.verify import damages as of_hosts
from tests.model.verify.cluster_damages import CLUSTER_DAMAGES
from tests.model.verify.damage import Damage, driver
from tests.model.verify.test_network import CHECKS as OF_NETWORKS
from tests.model.verify.test_sharing_pods import CHECKS as OF_SHARING_PODS
from tests.model.verify.test_transfers import CHECKS as OF_TRANSFERS

DAMAGES = (*of_hosts.DAMAGES, *CLUSTER_DAMAGES)


def has_also(known: dict[tuple[str, str], Damage]) -> bool:
    return any(damage.also or damage.alone for damage in known.values())


def rounds() -> list[tuple[Damage, ...]]:
    """Return the damages in rounds in which no check of a subject comes twice.

    One that rightly turns several checks red has a round of its own.
    """
    result: list[dict[tuple[str, str], Damage]] = []
    for damage in DAMAGES:
        key = (damage.check, damage.subject)
        shared = (
            []
            if damage.also or damage.alone
            else [known for known in result if len(known) > 1 or not has_also(known)]
        )
        free = next((known for known in shared if key not in known), None)
        if free is None:
            free = {}
            result.append(free)
        free[key] = damage
    return [tuple(known.values()) for known in result]


def test_a_site_as_declared_is_proven(site: ModelSite) -> None:
    report = site.verify()
    assert [
        (each.check, each.subject, each.message)
        for each in report.checks
        if each.outcome is not CheckOutcome.PROVEN and each.check not in OF_SHARING_PODS
    ] == []


def red(report: VerifyReport) -> dict[tuple[str, str], str]:
    return {
        (each.check, each.subject): each.message
        for each in report.checks
        if each.outcome is CheckOutcome.FAILED
    }


@pytest.mark.parametrize("damages", rounds(), ids=lambda damages: f"{len(damages)} damages")
def test_what_is_damaged_turns_its_check_red_and_no_other(
    site: ModelSite, damages: tuple[Damage, ...]
) -> None:
    for damage in damages:
        damage.do(site)
    report = site.verify()
    expected = {(damage.check, damage.subject) for damage in damages}
    assert set(red(report)) == expected.union(*(damage.also for damage in damages))
    for damage in damages:
        assert damage.words in red(report)[damage.check, damage.subject]
    assert report.exit_code(strict=False) == ExitCode.VERIFY_FAILED
    ended = site.events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.outcomes == {str(outcome): report.count(outcome) for outcome in CheckOutcome}
    assert sum(ended.outcomes.values()) == len(report.checks)
    assert "hunter2" not in str(report)


def test_every_check_that_ships_is_among_the_damages() -> None:
    assert len(DAMAGES) >= 50
    pods = OF_TRANSFERS | OF_SHARING_PODS
    assert check_names(check_folders()) == OF_NETWORKS | pods | {damage.check for damage in DAMAGES}


def test_what_was_asked_before_a_reboot_is_asked_again_after_it(site: ModelSite) -> None:
    host = site.hosts["pve/ssh"]
    assert site.apply().exit_code == 0  # from here on the plan asks along what the checks ask
    host.state.cmdline = host.state.boot_line = "ro"
    del host.state.files["/etc/modprobe.d/provision-cards.conf"]
    driver("bochs_drm")(host.state)  # the next apply reboots, and nobody starts the VM that has the card
    boot = host.state.boot_id
    report = site.apply(Options(allow=frozenset({"reboot-hypervisor"})))
    assert host.state.boot_id != boot
    assert isinstance(report.verification, VerifyReport)
    assert set(red(report.verification)) == {("test_cards_of_running_vms_are_with_vfio", "pve")}
    assert report.exit_code == ExitCode.VERIFY_FAILED
