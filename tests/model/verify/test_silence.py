"""Systems that give no answers: whose silence counts, and what it means for the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options, Site
from provision.api.domains import load_inventory as load
from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused
from provision.values.outcomes import ExitCode
from provision.verify.model import VerifyReport
from tests.model.model_site import ModelSite
from tests.unit.proxmox.roles.world import INVENTORY as HYPERVISOR
from tests.unit.proxmox.roles.world import World

INVENTORY = """
version: 1
name: fleet
access: { user: root }
network: { cidr: 10.0.0.0/24 }
nodes:
  ours: { address: 10.0.0.1, sysctl: { vm.swappiness: 10 } }
  theirs: { address: 10.0.0.2, manage: false, sysctl: { vm.swappiness: 10 }, ssh: { key: ./nobody-has-it } }
"""
UNREACHED = Permanent(Diagnostic("SSH_AUTH_FAILED", "nobody is let in"))
STRANGER = Refused(Diagnostic("HOST_KEY_UNKNOWN", "nobody accepted its key"))


def fleet(folder: Path, silent: dict[str, ProvisionError]) -> tuple[ModelSite, list[str]]:
    """Return a site in memory some of whose systems give no answers, and the list of who was asked."""
    (folder / "fleet.yaml").write_text(INVENTORY)
    model, asked = ModelSite(load(folder / "fleet.yaml"), folder / "state"), list[str]()

    def opened(spec: SystemSpec, endpoint: Endpoint) -> Driver:
        asked.append(spec.name)
        if spec.name in silent:
            raise silent[spec.name]
        return model.open(spec, endpoint)

    model.site = lambda: Site(model.inventory, "site", model.state, opened, model.verifier)  # type: ignore[method-assign]  # another way in
    return model, asked


def verified(model: ModelSite, *targets: str) -> VerifyReport:
    site = model.site()
    try:
        return site.verify(Options(targets=targets), model.events.append, Cancel())
    finally:
        site.close()


def test_what_is_not_managed_is_neither_asked_nor_missed(tmp_path: Path) -> None:
    model, asked = fleet(tmp_path, {"theirs/ssh": UNREACHED})
    assert model.apply().exit_code == 0
    report = verified(model)
    assert report.silent == ()
    assert report.exit_code(strict=False) is ExitCode.DONE
    assert set(asked) == {"ours/ssh"}


def test_also_not_where_it_is_named(tmp_path: Path) -> None:
    model, asked = fleet(tmp_path, {"theirs/ssh": UNREACHED})
    assert verified(model, "theirs").silent == ()
    assert asked == []


def test_its_silence_is_not_told_either_where_something_else_asked_it(tmp_path: Path) -> None:
    model, _ = fleet(tmp_path, {"theirs/ssh": UNREACHED})
    site = model.site()
    with pytest.raises(Permanent):
        site.session.ask("theirs/ssh", (), Cancel())
    assert site.verify(Options(), model.events.append, Cancel()).silent == ()
    site.close()


def test_our_vm_on_an_unmanaged_hypervisor_is_still_verified(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.apply().exit_code == 0
    address = "    address: 10.0.0.5\n"
    world.write(HYPERVISOR.replace(address, f"{address}    manage: false\n"))
    world.drivers.clear()
    site = world.site()
    site.verifier = lambda *_: VerifyReport(())
    site.verify(Options(), lambda _: None, Cancel())
    site.close()
    assert {driver.system for driver in world.drivers} == {"pve/api", "vm-1/ssh", "vm-gpu/ssh", "router"}


@pytest.mark.parametrize(
    ("error", "code"), [(UNREACHED, ExitCode.ERROR), (STRANGER, ExitCode.REFUSED)], ids=["away", "stranger"]
)
def test_the_silence_of_a_node_of_ours_counts_as_its_reason_does(
    tmp_path: Path, error: ProvisionError, code: ExitCode
) -> None:
    model, _ = fleet(tmp_path, {"ours/ssh": error})
    report = verified(model)
    assert [each.diagnostic for each in report.silent] == list(error.diagnostics)
    assert report.exit_code(strict=False) is code
    assert model.events[-1].exit_code == code  # type: ignore[attr-defined]  # the last event is RunEnded
