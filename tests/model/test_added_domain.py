"""A package of somebody else adds one of each by its entry point, and nothing of ours is touched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from provision.api import Options, Site
from provision.api.domains import GROUP, domains, effect_classes, load_inventory, vocabulary
from provision.api.systems import open_system, query_kinds
from provision.cli.main import main
from provision.connections.contracts import Endpoint
from provision.connections.ssh_pool import SshPool
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.engine.model import Plan, RunReport
from provision.hosts.queries.shell import Shell, ShellResult
from provision.inventory import Inventory, json_schema
from provision.testing.model_host import HostState, ModelFile, ModelHost
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor
from provision.verify.model import CheckOutcome, VerifyReport
from tests.scratch.domain import SHOW_BANNER, STORED, BannerText

T = TypeVar("T")
INVENTORY = """\
version: 1
name: site
policy: { ask: [show-banner] }
nodes:
  n1:
    address: 10.0.0.11
    host_resources:
      - { kind: banner, name: hello, text: "welcome to {{ site }}" }
"""
PLAYBOOK = """\
name: scratch
steps:
  - { role: host_resources, on: nodes }
  - { role: node_object, on: nodes }
  - { verify: all }
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lay the metadata of an installed package on the path, as pip would."""
    metadata = tmp_path / "scratch-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: scratch\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nscratch = tests.scratch.domain:DOMAIN\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    STORED.clear()
    domains.cache_clear()
    yield
    domains.cache_clear()


def write_banner(state: HostState, script: str) -> None:
    """Do what the fix of a banner says."""
    text = script.removeprefix("echo ").removesuffix(" >/etc/banner")
    state.files["/etc/banner"] = ModelFile(text.encode())


def answer_shell(state: HostState, query: Shell) -> ShellResult:
    """Answer what the check asks; those of ours have nothing to look at here."""
    file = state.files.get("/etc/banner") if query.command == "cat /etc/banner" else None
    return ShellResult(0 if file else 1, file.content if file else b"", b"")


@dataclass
class Machines:
    """One node, and the cluster that the added domain opens by itself."""

    inventory: Inventory
    folder: Path
    shown: list[str] = field(default_factory=list)
    on_show: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        def show(_state: HostState) -> None:
            self.shown.append("banner")
            self.on_show()

        self.host = ModelHost("n1/ssh", on_script=write_banner, performs={SHOW_BANNER: show})
        self.host.answers[Shell] = answer_shell
        self.host.answers[BannerText] = lambda state, _: (
            state.files["/etc/banner"].content.decode() if "/etc/banner" in state.files else ""
        )

    def open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.kind == "host":
            return self.host
        return open_system(self.inventory, Redactor(), SshPool(), spec, endpoint)

    def site(self) -> Site:
        (self.folder / "scratch.yaml").write_text(PLAYBOOK)
        return Site(self.inventory, str(self.folder / "scratch.yaml"), self.folder / "state", self.open)

    def plan(self, allow: frozenset[str] = frozenset()) -> Plan:
        return self._with(lambda site: site.plan(Options(allow=allow), lambda _: None, Cancel()))

    def apply(self, allow: frozenset[str] = frozenset()) -> RunReport:
        return self._with(
            lambda site: site.apply(None, Options(allow=allow), lambda _: None, Cancel(), lambda _: True)
        )

    def _with(self, call: Callable[[Site], T]) -> T:
        site = self.site()
        try:
            return call(site)
        finally:
            site.close()


@pytest.fixture
def machines(_installed: None, tmp_path: Path) -> Machines:
    (tmp_path / "site.yaml").write_text(INVENTORY)
    return Machines(load_inventory(tmp_path / "site.yaml"), tmp_path)


@pytest.mark.usefixtures("_installed")
def test_its_names_are_known_to_the_inventory_and_the_schema() -> None:
    names = vocabulary()
    definitions = json_schema(names)["$defs"]
    assert "show-banner" in effect_classes()
    assert "scratch_dhcp" in definitions["Dhcp"]["properties"]["backend"]["enum"]
    assert definitions["BannerResource"]["properties"]["kind"] == {"const": "banner"}
    assert "banner-text" in query_kinds("host")


def test_without_the_package_its_names_are_refused_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(INVENTORY)
    with pytest.raises(UsageError) as error:
        load_inventory(tmp_path / "site.yaml")
    assert {each.source.line for each in error.value.diagnostics if each.source} == {3, 8}


@pytest.mark.usefixtures("_installed")
def test_a_wrong_value_of_its_kind_is_found_where_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(INVENTORY.replace('text: "welcome', 'txt: "welcome'))
    with pytest.raises(UsageError) as error:
        load_inventory(tmp_path / "site.yaml")
    assert {(each.code, each.source.line) for each in error.value.diagnostics if each.source} == {
        ("INVENTORY_UNKNOWN_KEY", 8),
        ("INVENTORY_MISSING_KEY", 8),
    }


def test_its_resource_waits_for_the_consent_that_the_policy_wants(machines: Machines) -> None:
    (risk,) = machines.plan().risks
    assert (risk.effect.cls, risk.consent) == (SHOW_BANNER, "ask")
    assert machines.apply().exit_code == ExitCode.WAITING
    assert machines.shown == []


def test_its_resource_role_system_and_check_take_part_in_a_run(machines: Machines) -> None:
    report = machines.apply(frozenset({"show-banner"}))
    outcomes = {step.id.role: step.outcome for step in report.steps if step.id.role != "verify"}
    assert outcomes == {"host_resources": "changed", "node_object": "changed"}
    assert machines.host.state.files["/etc/banner"].content == b"welcome to site"
    assert machines.shown == ["banner"]
    assert STORED == {"n1": "n1"}
    assert machines.plan().empty
    assert isinstance(report.verification, VerifyReport)
    results = {check.name: check.outcome for check in report.verification.checks}
    assert results["The banner has its declared text"] is CheckOutcome.PROVEN


def test_its_hook_is_run_before_and_after_an_effect(machines: Machines) -> None:
    STORED["n1"] = "n1"
    machines.on_show = lambda: STORED.update(during=",".join(sorted(STORED)))
    report = machines.apply(frozenset({"show-banner"}))
    steps = [str(step.id) for step in report.steps]
    assert {"n1: hush:before", "n1: hush:after"} < set(steps)
    assert STORED["during"] == "hushed-n1,n1"
    assert set(STORED) == {"n1", "hushed-n1", "during", "thanked-n1"}


@pytest.mark.usefixtures("_installed")
def test_its_command_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banner", "hello"]) == ExitCode.DONE
    assert capsys.readouterr().out == "*** hello ***\n"


def test_without_the_package_its_command_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banner", "hello"]) == ExitCode.USAGE
    assert "banner" in capsys.readouterr().err
