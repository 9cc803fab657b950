from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from provision.cli import main, runs
from provision.cli.lab_network import INSIDE, lab_settings
from provision.cli.names import find_inventory
from provision.inventory import Inventory, load
from provision.lab import site
from provision.lab.settings import LabError, LabSettings
from provision.lab.site import Status


class Entered(Exception):  # noqa: N818 - what happened, no error
    """The process would be another one now."""


class FakeLab:
    """Stands in for `provision.lab.site`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, up: bool) -> None:
        self.is_up = up
        self.entered: list[str] = []
        self.ups = 0
        self.broken = ""
        monkeypatch.setenv("PROVISION_LAB_DIR", str(folder))
        monkeypatch.delenv(INSIDE, raising=False)
        monkeypatch.setattr("os.geteuid", lambda: 0)
        for name in ("status", "up", "down", "enter", "console"):
            monkeypatch.setattr(site, name, getattr(self, name))

    def status(self, name: str) -> Status:
        return Status(name, "qemu", self.is_up, ())

    def up(self, settings: LabSettings, progress: Any) -> None:
        if self.broken:
            raise LabError(self.broken)
        progress(f"starting {settings.name}")
        self.ups += 1
        self.is_up = True

    def down(self, _name: str, _progress: Any) -> bool:
        was, self.is_up = self.is_up, False
        return was

    def enter(self, _name: str, argv: list[str]) -> NoReturn:
        self.entered = argv
        raise Entered

    def console(self, _name: str, node: str) -> Path:
        raise LabError(f"no console of {node}")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLab:
    monkeypatch.setenv(INSIDE, "")  # so that what the code sets is taken back afterwards
    return FakeLab(monkeypatch, tmp_path, up=False)


def test_the_lab_is_made_from_the_inventory() -> None:
    settings = lab_settings(load(find_inventory("lab")))
    assert (settings.name, settings.driver, settings.cidr, settings.gateway) == (
        "lab",
        "qemu",
        "198.18.0.0/24",
        "198.18.0.1",
    )
    assert settings.hypervisor == ("pve", "198.18.0.5")
    assert [each.name for each in settings.cards] == ["display", "shared"]
    assert settings.images == ("debian-12",)


def test_apply_starts_the_lab_and_runs_the_same_command_inside(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["apply", "lab", "--yes", "--step", "image"]
    main.main(argv)
    assert lab.ups == 1
    assert lab.entered == [sys.executable, "-P", "-m", "provision.cli.main", *argv]
    assert "lab: starting lab" in capsys.readouterr().err


def test_apply_leaves_a_lab_that_is_up(lab: FakeLab) -> None:
    lab.is_up = True
    main.main(["apply", "lab", "--yes"])
    assert lab.ups == 0
    assert lab.entered


@pytest.mark.parametrize("verb", ["plan", "verify"])
def test_other_commands_do_not_start_it(verb: str, lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "lab"]) == 1
    assert not lab.entered
    assert "next: provision lab up lab" in capsys.readouterr().err


def test_inside_the_lab_its_own_file_is_laid_over(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[Inventory] = []

    def open_site(inventory: Inventory, _playbook: str | None = None) -> NoReturn:
        opened.append(inventory)
        raise Entered

    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "site.yaml").write_text("access: { user: overlaid }\n")
    monkeypatch.setenv(INSIDE, str(tmp_path.resolve() / "lab"))
    monkeypatch.setattr(runs, "open_site", open_site)
    main.main(["plan", "lab"])
    assert not lab.entered
    assert opened[0].access.user == "overlaid"


def test_without_root_it_says_so(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main.main(["apply", "lab", "--yes"]) == 1
    assert not lab.entered
    assert "LAB_NEEDS_ROOT" in capsys.readouterr().err


def test_a_lab_that_does_not_start_shows_its_console(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.broken = "198.18.0.5 did not answer\nkernel panic"
    assert main.main(["lab", "up"]) == 1
    err = capsys.readouterr().err
    assert "LAB_FAILED" in err
    assert "| kernel panic" in err


def test_the_lab_is_told_up_and_down(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lab", "status"]) == 1
    assert main.main(["lab", "up"]) == 0
    assert main.main(["lab", "status"]) == 0
    assert main.main(["lab", "down"]) == 0
    assert not lab.is_up
    assert main.main(["lab", "down"]) == 0
    said = capsys.readouterr().out
    assert "lab lab is not up, driver qemu\nnext: provision lab up inventories/lab.yaml\n" in said
    assert "lab lab is up, driver qemu\n" in said
    assert said.endswith("lab lab is down\nthere is nothing of lab lab\n")


def test_an_inventory_without_a_lab_has_none(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lab", "up", "homelab"]) == 64
    assert lab.ups == 0
    assert "LAB_NOT_DECLARED" in capsys.readouterr().err


def test_a_console_shows_its_last_lines_without_the_inventorys_secrets(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del lab
    screen = tmp_path / "vm-1.log"
    screen.write_bytes(b"before\r\nbooting\r\nits password is hunter2-and-more\r\n")
    monkeypatch.setattr(site, "console", lambda _name, _node: screen)
    monkeypatch.setenv("PROVISION_TEST_SECRET", "hunter2-and-more")
    file = tmp_path / "lab.yaml"
    given = "{ kind: file, path: /etc/mine, secret: !secret { env: PROVISION_TEST_SECRET } }"
    file.write_text(
        find_inventory("lab")
        .read_text()
        .replace("host_resources:\n", f"host_resources:\n      - {given}\n", 1)
    )
    assert main.main(["lab", "console", "vm-1", str(file), "--lines", "2"]) == 0
    assert capsys.readouterr().out == "booting\nits password is ***\n"


def test_a_console_that_is_not_there_is_an_error(lab: FakeLab) -> None:
    del lab
    assert main.main(["lab", "console", "vm-9"]) == 1
