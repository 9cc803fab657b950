"""Roles that a playbook names: known, unknown, or planned and not supported yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options, Site, load, read_playbook, roles_of
from provision.engine.model import Plan
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode

INVENTORY = "version: 1\nname: site\naccess: { user: root }\nnodes: { n1: { address: 10.0.0.1 } }\n"


def site(folder: Path, *roles: str) -> Site:
    (folder / "site.yaml").write_text(INVENTORY)
    lines = "".join(f"  - {{ role: {role}, on: nodes }}\n" for role in roles)
    (folder / "own.yaml").write_text(f"name: own\nsteps:\n{lines}")
    return load(folder / "site.yaml", playbook=str(folder / "own.yaml"), state=folder / "state")


def planned(site: Site, *steps: str) -> Plan:
    return site.plan(Options(steps=steps), lambda _: None, Cancel())


def test_a_role_that_nobody_knows_is_wrong_usage_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        planned(site(tmp_path, "host_resuorces", "k3s_sever", "image"))
    first, second = caught.value.diagnostics
    assert caught.value.exit_code is ExitCode.USAGE
    assert (first.code, second.code) == ("ROLE_UNKNOWN", "ROLE_UNKNOWN")
    assert first.summary == "there is no role 'host_resuorces': did you mean host_resources?"
    assert second.summary == "there is no role 'k3s_sever': did you mean k3s_server?"
    assert "base_os" in first.remedy


@pytest.mark.parametrize("name", ["names", "contracts", "../roles/image"])
def test_a_module_that_holds_no_role_is_no_role(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="ROLE_UNKNOWN"):
        planned(site(tmp_path, name))


def test_planned_roles_of_a_playbook_are_named_once_in_one_note(tmp_path: Path) -> None:
    plan = planned(site(tmp_path, "dynamo", "image", "dynamo"))
    assert [(note.code, note.severity) for note in plan.warnings] == [("ROLE_UNSUPPORTED", "note")]
    assert plan.warnings[0].summary.endswith(": dynamo")


def test_with_the_shipped_playbook_only_what_step_asks_for_is_named(tmp_path: Path) -> None:
    shipped = site(tmp_path, "image")
    shipped.playbook = "site"
    assert planned(shipped, "image").warnings == ()
    (note,) = planned(shipped, "image", "dynamo").warnings
    assert note.summary == "not supported yet, and nothing is declared for it: dynamo"


def test_the_shipped_playbooks_name_known_roles_only() -> None:
    for name in ("site", "hosts"):
        assert roles_of(read_playbook(name))
