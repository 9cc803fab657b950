"""The question about a machine's identity, run by real shells."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.hosts.queries.identity import IDENTITY_KIND, Identity, MachineIdentity
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_says_which_machine_it_is(shell: str) -> None:
    frame = run(shell, IDENTITY_KIND.script([Identity()]))
    answer = IDENTITY_KIND.parse(frame, [Identity()])[Identity()]
    assert isinstance(answer, MachineIdentity), answer
    assert answer.hostname


@pytest.mark.parametrize("shell", SHELLS)
def test_the_port_of_a_management_controller_tells_no_machines_apart(shell: str, tmp_path: Path) -> None:
    # b0:3a:f2:b6:05:9f is on boards of several makers.
    for name, bus, address in (("enp1s0", "pci", "3c:ec:ef:2c:f5:54"), ("enx0", "usb", "b0:3a:f2:b6:05:9f")):
        device = tmp_path / name / "device"
        device.mkdir(parents=True)
        (device / "subsystem").symlink_to(f"../../../../bus/{bus}")
        (tmp_path / name / "address").write_text(f"{address}\n")
    script = IDENTITY_KIND.script([Identity()]).replace("/sys/class/net", str(tmp_path))
    answer = IDENTITY_KIND.parse(run(shell, script), [Identity()])[Identity()]
    assert isinstance(answer, MachineIdentity), answer
    assert answer.macs == ("3c:ec:ef:2c:f5:54",)
