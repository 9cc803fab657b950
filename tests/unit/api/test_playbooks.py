"""Playbooks: those that ship can be read, and a verification may be that of some domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import read_playbook, roles_of
from provision.api.domains import check_folders
from provision.inventory.playbook import VERIFY
from provision.values.errors import UsageError

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[3] / "playbooks").glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_playbook_names_roles_that_exist_and_has_a_page(name: str) -> None:
    playbook = read_playbook(name)
    assert playbook.name == name
    assert playbook.description
    roles_of(playbook)
    page = Path(__file__).parents[3] / "docs" / "playbooks" / f"{name}.md"
    assert page.read_text(encoding="utf-8").startswith(f"# Playbook `{name}`")


def test_a_verification_may_be_that_of_some_domains() -> None:
    (entry,) = read_playbook("fabric-check").entries
    assert (entry.role, entry.checks) == (VERIFY, ("gpu", "rdma"))
    assert [folder.parent.name for folder in check_folders(entry.checks)] == ["gpu", "rdma"]
    assert read_playbook("site").entries[-1].checks == ()
    assert len(check_folders()) > 2


def test_a_domain_without_checks_cannot_be_verified(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsteps:\n  - { verify: [gpus] }\n")
    with pytest.raises(UsageError) as raised:
        read_playbook(str(file))
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, "'gpus'" in diagnostic.summary) == ("PLAYBOOK_WRONG", True)
    assert "gpu, hosts" in diagnostic.remedy
