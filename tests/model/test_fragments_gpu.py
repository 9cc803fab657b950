"""The question about GPUs, run by real shells against a stand-in of nvidia-smi."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provision.gpu.queries import GPU_STATE_KIND, GpuState, GpuStatus
from tests.model.shells import SHELLS, run

ROW = "0, NVIDIA H200, GPU-1, 00000000:00:06.0, 143771, 580.159.04, 9.0, Enabled, Disabled, Enabled, 700.00"
TOOL = f"""#!/bin/sh
case "$*" in
  *fabric.state*) echo '00000000:00:06.0, Completed, Success' ;;
  *) echo '{ROW}' ;;
esac
"""
BROKEN = """#!/bin/sh
echo 'Failed to initialize NVML: Driver/library version mismatch'
exit 18
"""


TOOLS = ("sed", "ls", "sort", "tail", "uname", "grep", "od", "tr", "timeout")
"""What else the question runs: nothing of a real driver is in the search path."""


def state(shell: str, folder: Path, tool: str) -> GpuStatus:
    for name in (*TOOLS, SHELLS[shell][0], "sh"):
        real = shutil.which(name)
        if real is not None:
            (folder / name).symlink_to(real)
    if tool:
        (folder / "nvidia-smi").write_text(tool)
        (folder / "nvidia-smi").chmod(0o755)
    frame = run(shell, GPU_STATE_KIND.script([GpuState()]), env={"PATH": str(folder)})
    answer = GPU_STATE_KIND.parse(frame, [GpuState()])[GpuState()]
    assert isinstance(answer, GpuStatus), answer
    return answer


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_cards(shell: str, tmp_path: Path) -> None:
    (card,) = state(shell, tmp_path, TOOL).cards
    assert (card.address, card.memory, card.fabric) == ("0000:00:06.0", 143771, ("Completed", "Success"))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("module", ["nvidia", "nvidia-current", "nvidia-current-open"])
def test_the_module_on_disk_is_read_under_debians_names_too(shell: str, module: str, tmp_path: Path) -> None:
    modinfo = tmp_path / "modinfo"
    modinfo.write_text(f'#!/bin/sh\n[ "$5" = {module} ] || exit 1\n[ "$4" = signer ] || echo 535.309.01\n')
    modinfo.chmod(0o755)
    status = state(shell, tmp_path, "")
    assert (status.modinfo, status.on_disk, status.signed) == (True, "535.309.01", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_driver_that_does_not_work_is_an_answer(shell: str, tmp_path: Path) -> None:
    status = state(shell, tmp_path, BROKEN)
    assert status.tool
    # On a machine with real cards each of them is asked for by its address, too.
    problems = [card.problem for card in status.cards] or [status.failure]
    assert all("version mismatch" in problem for problem in problems)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_machine_without_a_driver_is_an_answer(shell: str, tmp_path: Path) -> None:
    status = state(shell, tmp_path, "")
    assert status.next_kernel
    assert not status.tool
    assert status.cards == ()
