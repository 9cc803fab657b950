"""A second GRUB drop-in, read after ours, that drops what ours adds: named, and gone without a reboot."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options
from provision.testing.model_state import ModelFile
from provision.values.outcomes import Outcome
from tests.model.model_site import ModelSite
from tests.model.test_engine_sites import lab

SECOND = "/etc/default/grub.d/99-site.cfg"
ALLOWED = Options(allow=frozenset({"reboot-hypervisor", "console-loss"}))


def test_it_is_named_and_its_end_costs_no_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    site = ModelSite(lab(tmp_path), tmp_path / "state")
    host = site.hosts["pve/ssh"].state
    assert site.apply(ALLOWED).exit_code == 0
    line, boots = host.boot_line, host.boots
    host.files[SECOND] = ModelFile(b'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    host.boot_line = "root=/dev/vda1 ro quiet"  # somebody has run update-grub
    report = site.apply(ALLOWED)
    (failed,) = (step for step in report.steps if step.outcome is Outcome.FAILED)
    assert (report.exit_code, str(failed.id)) == (1, "pve: hypervisor_host")
    assert [problem.code for problem in failed.diagnostics] == ["KERNEL_LINE_OVERRIDDEN"]
    assert SECOND in failed.diagnostics[0].summary
    del host.files[SECOND]
    assert site.apply(ALLOWED).exit_code == 0
    assert (host.boot_line, host.boots) == (line, boots)
