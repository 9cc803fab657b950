"""Lines of passthrough guides on a hypervisor go when the inventory says so, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.testing.model_host import ModelFile
from provision.values.outcomes import ExitCode
from tests.model.model_site import ModelSite
from tests.model.test_manual_dhcp import INVENTORY

MODULES = "/etc/modules"
BEFORE = b"# kept\nvfio\nvfio_virqfd\n"


def site(folder: Path, declared: str) -> ModelSite:
    (folder / "key").write_text("not a real key\n")
    (folder / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    cards = f'    cards: {{ one: {{ address: "0000:02:00" }} }}\n{declared}'
    changed = {
        "    reserve_address: true\n": cards,
        "allow: [": "allow: [reboot-hypervisor, ",
        "backend: manual, order: @ORDER, range: 10.0.0.100-10.0.0.199": "backend: static",
        "@FOLDER": str(folder),
        "@SHA": "a" * 64,
        "@PRINT": ":".join(["AA"] * 32),
        "@KEY": "A" * 43,
    }
    text = INVENTORY
    for old, new in changed.items():
        text = text.replace(old, new)
    (folder / "home.yaml").write_text(text)
    models = ModelSite(load(folder / "home.yaml"), folder / "state")
    models.hosts["pve/ssh"].state.files[MODULES] = ModelFile(BEFORE)
    return models


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


def test_without_being_asked_for_the_lines_stay(tmp_path: Path) -> None:
    models = site(tmp_path, "")
    assert models.apply().exit_code == ExitCode.DONE
    assert models.hosts["pve/ssh"].state.files[MODULES].content == BEFORE


def test_declared_they_become_comments_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    models = site(tmp_path, "    guide_lines: comment_out\n")
    assert models.apply().exit_code == ExitCode.DONE
    after = b"# kept\nvfio\n# off by provision: vfio_virqfd\n"
    assert models.hosts["pve/ssh"].state.files[MODULES].content == after
    assert models.plan().empty
