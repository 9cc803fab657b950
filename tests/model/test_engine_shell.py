"""The engine over the real host driver and a real shell here: files below a temporary folder only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from provision.api import Options, Site
from provision.api.domains import load_inventory as load
from provision.connections.contracts import Endpoint
from provision.connections.local import LocalConnection
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.hosts.driver import HostDriver
from provision.hosts.query_kinds import HOST_KINDS
from provision.values.cancel import Cancel
from provision.verify.model import VerifyReport

pytestmark = [
    pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock(1), as hosts do"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the host driver acts as root"),
]

INVENTORY = """
version: 1
name: here
access: {{ user: root }}
nodes:
  n1:
    address: 198.51.100.1
    host_resources:
      - {{ kind: file, path: {folder}/a, content: "one\\n", mode: "0640" }}
      - {{ kind: file, path: {folder}/b, content: "it's $HOME `x`\\n" }}
"""


def site(folder: Path) -> Site:
    file = folder / "here.yaml"
    file.write_text(INVENTORY.format(folder=folder / "made"))

    def open_driver(spec: SystemSpec, _endpoint: Endpoint) -> Driver:
        return HostDriver(spec.name, LocalConnection(), HOST_KINDS, who="test", state=str(folder / "host"))

    return Site(load(file), "hosts", folder / "state", open_driver, lambda *_: VerifyReport(()))


def apply(folder: Path) -> tuple[int, dict[str, int], list[str]]:
    opened = site(folder)
    try:
        report = opened.apply(None, Options(), lambda _: None, Cancel(), lambda _: True)
    finally:
        opened.close()
    return report.exit_code, report.trips, [str(step.outcome) for step in report.steps]


def test_files_are_made_left_alone_and_mended(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    code, _, outcomes = apply(tmp_path)
    assert (code, outcomes) == (0, ["changed"])
    assert (tmp_path / "made" / "b").read_text() == "it's $HOME `x`\n"
    assert apply(tmp_path) == (0, {"n1/ssh": 1}, ["unchanged"])
    (tmp_path / "made" / "a").write_text("two\n")
    code, trips, outcomes = apply(tmp_path)
    assert (code, trips, outcomes) == (0, {"n1/ssh": 3}, ["changed"])
    assert (tmp_path / "made" / "a").read_text() == "one\n"
