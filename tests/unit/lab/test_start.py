"""A lab that starts: whoever looks meanwhile is not let in by what a former boot of the machine left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provision.lab import keys, processes, router, site
from provision.lab.images import Images
from provision.lab.record import Record
from provision.lab.settings import LabSettings


class Machine:
    """A router or a hypervisor that starts at once."""

    def __init__(self, running: bool, overlay: Path, seen: list[bool]) -> None:
        self.running, self.overlay, self.seen = running, overlay, seen

    def pid(self) -> int | None:
        return 7 if self.running else None

    def start(self, *_: Any) -> None:
        self.seen.append(self.overlay.exists())
        self.running = True


@pytest.mark.parametrize(
    ("gate_runs", "head_runs", "daemon_runs", "stays"),
    [
        (True, True, True, True),
        (False, False, False, False),
        (False, True, True, False),
        (True, False, True, False),
        (True, True, False, False),
    ],
)
def test_the_overlay_is_there_only_while_nothing_has_to_be_started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gate_runs: bool,
    head_runs: bool,
    daemon_runs: bool,
    stays: bool,
) -> None:
    monkeypatch.setenv("PROVISION_LAB_DIR", str(tmp_path))
    settings = LabSettings("lab", "container", {"pve": "198.18.0.5"})
    (settings.folder / "keys").mkdir(parents=True)
    settings.overlay.write_text("of the former boot")
    seen: list[bool] = []
    gate, head = (Machine(running, settings.overlay, seen) for running in (gate_runs, head_runs))

    def look(*_: Any) -> None:
        seen.append(settings.overlay.exists())

    monkeypatch.setattr(router, "container", lambda *_: gate)
    monkeypatch.setattr(router, "prepare", lambda *_: None)
    monkeypatch.setattr(site, "_hypervisor", lambda _lab: head)
    monkeypatch.setattr(site, "_start_hypervisor", lambda _lab, machine, _: machine.start())
    monkeypatch.setattr(processes, "read_pid", lambda _file: 9 if daemon_runs else None)
    for name in ("ensure_ssh_key", "ensure_certificate"):
        monkeypatch.setattr(keys, name, lambda *_: "")
    monkeypatch.setattr(site, "_pin_hosts", lambda _: {"router": "SHA256:r", "hypervisor": "SHA256:h"})
    monkeypatch.setattr(site, "_start_daemon", look)
    monkeypatch.setattr(site, "_await", look)
    lab = Record(settings, Images(tmp_path / "rootfs", None, ()), ())
    site._start(lab, lambda _: None)
    assert set(seen) == {stays}
    assert "SHA256:r" in settings.overlay.read_text()
