"""What MPS leaves on a node, run by real shells against a stand-in of nvidia-smi: only what is dead goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.gpu.mps import MPS_STATE_KIND, ROOT, ClearMps, MpsCleared, MpsState, MpsStatus
from tests.model.shells import SHELLS, run

TOOL = """#!/bin/sh
case "$*" in
  *query-gpu*) cat {modes} ;;
  "-i GPU-aa -c DEFAULT") echo 'GPU-aa, Default' >{modes}; echo 'GPU-bb, Prohibited' >>{modes} ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
SERVER, OTHER = (
    b"HOME=/\0CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe\0",
    b"CUDA_MPS_PIPE_DIRECTORY=/tmp/x\0",
)


class Node:
    """A node's folders, its processes as files, and nvidia-smi."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        self.root = folder / "mps"
        self.modes = folder / "modes"
        self.modes.write_text("GPU-aa, Exclusive_Process\nGPU-bb, Prohibited\n")
        (folder / "bin").mkdir()
        (folder / "proc").mkdir()
        (folder / "proc/mounts").write_text("tmpfs /run tmpfs rw 0 0\n")
        tool = folder / "bin/nvidia-smi"
        tool.write_text(TOOL.format(modes=self.modes))
        tool.chmod(0o755)

    def left(self, *, killed: bool) -> None:
        for name in ("pipe", "log"):
            (self.root / "nvidia.com/gpu" / name).mkdir(parents=True)
        if killed:
            (self.root / "nvidia.com/gpu/.started").touch()

    def process(self, number: int, environ: bytes, name: str = "nvidia-cuda-mps") -> None:
        place = self.folder / "proc" / str(number)
        place.mkdir()
        (place / "comm").write_text(f"{name}\n")
        (place / "environ").write_bytes(environ)

    def _here(self, script: str) -> str:
        own = script.replace("/proc/", f"{self.folder}/proc/").replace(ROOT, str(self.root))
        return f"PATH={self.folder}/bin:$PATH; {own}"

    def state(self) -> MpsStatus:
        frame = run(self.shell, self._here(MPS_STATE_KIND.script([MpsState()])))
        answer = MPS_STATE_KIND.parse(frame, [MpsState()])[MpsState()]
        assert isinstance(answer, MpsStatus), answer
        return answer

    def clear(self) -> int | None:
        return run(self.shell, self._here(f"set -eu\n{ClearMps(0).shell()}")).rc


@pytest.fixture(params=SHELLS)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


def test_a_killed_server_leaves_folders_and_exclusive_cards(node: Node) -> None:
    node.left(killed=True)
    folder = f"{node.root}/nvidia.com/gpu"
    assert node.state() == MpsStatus(killed=(folder,), exclusive=("GPU-aa",))
    assert node.clear() == 0
    assert node.state() == MpsStatus()
    assert node.modes.read_text() == "GPU-aa, Default\nGPU-bb, Prohibited\n", "a mode of a person stays"
    assert list(node.root.iterdir()) == []


def test_a_server_that_ended_in_order_leaves_folders_only(node: Node) -> None:
    node.left(killed=False)
    assert node.state() == MpsStatus(ended=(f"{node.root}/nvidia.com/gpu",))
    assert node.clear() == 0
    assert node.state() == MpsStatus()
    assert "Exclusive" in node.modes.read_text(), "somebody else made it exclusive"


def test_a_server_that_runs_is_waited_for_and_keeps_everything(node: Node) -> None:
    node.left(killed=True)
    node.process(7, SERVER)
    assert node.state().runs
    assert node.clear() == 1
    assert node.state().killed
    assert "Exclusive" in node.modes.read_text()


def test_a_server_of_somebody_else_keeps_its_cards(node: Node) -> None:
    node.left(killed=True)
    node.process(7, OTHER)
    node.process(8, b"", "bash")
    assert (node.state().runs, node.state().other) == (False, True)
    assert node.clear() == 0
    assert "Exclusive" in node.modes.read_text()


def test_cards_that_cannot_be_read_keep_the_folders(node: Node) -> None:
    node.left(killed=True)
    (node.folder / "bin/nvidia-smi").write_text("#!/bin/sh\nexit 18\n")
    assert node.clear() != 0
    assert node.state().killed, "they are the only sign that a server was killed"


def test_without_mps_nothing_is_asked_of_the_driver(node: Node) -> None:
    (node.folder / "bin/nvidia-smi").write_text(f"#!/bin/sh\ntouch {node.folder}/asked\n")
    assert node.state() == MpsStatus()
    assert not (node.folder / "asked").exists()


def test_an_answer_that_is_cut_is_unknown() -> None:
    frame = run("dash", "echo 'runs|no'")
    assert isinstance(MPS_STATE_KIND.parse(frame, [MpsState()])[MpsState()], Unknown)


def test_what_goes_is_named() -> None:
    status = MpsStatus(True, False, ("/a",), ("/b",), True, ("GPU-aa",))
    answers = Snapshot("n/ssh", answers={MpsState(): status})
    paths = [change.path for change in MpsCleared("n/ssh").changes(answers)]
    assert paths == ["server", "/b", "/a", "GPU-aa", f"{ROOT}/shm"]
    foreign = Snapshot("n/ssh", answers={MpsState(): MpsStatus(False, True, (), ("/b",), True, ("GPU-aa",))})
    assert [change.path for change in MpsCleared("n/ssh").changes(foreign)] == ["/b"]
