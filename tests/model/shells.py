"""Runs fragments as the script protocol does, in the three shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provision.contracts.query import Frame
from provision.contracts.resource import Resource, ask
from provision.contracts.snapshot import Snapshot
from provision.hosts.query_kinds import HOST_KINDS

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
LIMIT = 60


def run(
    shell: str, fragment: str, *, path: Path | None = None, env: Mapping[str, str] | None = None
) -> Frame:
    """Run a fragment; `path` goes before the search path, for stand-ins of system tools."""
    argv = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    script = f"umask 077\nf() {{\n( set -eu\n{fragment}\n) </dev/null\n}}\nf\n"
    search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": f"{path}:{search}" if path else search, "LC_ALL": "C", "HOME": "/", **(env or {})}
    if "PROVISION_BLOBS" in os.environ:
        environment["PROVISION_BLOBS"] = os.environ["PROVISION_BLOBS"]
    process = subprocess.run(
        [*argv, "-s"],
        input=script.encode(),
        capture_output=True,
        timeout=LIMIT,
        env=environment,
        check=False,
    )
    return Frame(process.stdout, process.stderr, process.returncode)


def answers(shell: str, queries: Sequence[Any], **how: Any) -> Snapshot:
    """Ask grouped by kind, as the driver does."""
    answered: dict[Any, object] = {}
    for kind in dict.fromkeys(query.kind for query in queries):
        group = sorted({query for query in queries if query.kind == kind}, key=repr)
        frame = run(shell, HOST_KINDS[kind].script(group), **how)
        answered.update(HOST_KINDS[kind].parse(frame, group))
    return Snapshot("case/ssh", answers=answered)


def snapshot_of(shell: str, resources: Sequence[Resource], **how: Any) -> Snapshot:
    """Ask what some resources look at."""
    return answers(shell, tuple(ask(resources)), **how)
