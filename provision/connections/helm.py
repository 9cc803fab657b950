"""The program helm, run on this machine against a Kubernetes API.

The chart and the values are files of a private folder; helm downloads nothing and gets no variable of the
environment, so that neither a proxy nor a person's own settings of helm take part. Sources: helm.sh (helm
upgrade, helm uninstall) and `--help` of Helm 3.17 and 4.2: `--atomic` and `--force` have other names in
Helm 4, and its `--wait` takes a word; the options used here are the same in both.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import selectors
import signal
import subprocess
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from provision.connections.contracts import KubeEndpoint
from provision.connections.download import download_folder
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

MAJORS = (3, 4)
KEPT_LINES = 40
GRACE_SECONDS = 60.0
"""How long helm may take beyond its own deadline, and after it was asked to end."""
POLL_SECONDS = 0.5
RENDER_SECONDS = 600.0
_VERSION = re.compile(r"v?([0-9]+)\.[0-9]+\.[0-9]+")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class HelmTask:
    """One thing that helm does.

    Args:
        verb: `upgrade`, which also installs, or `uninstall`.
        name: of the release.
        namespace: of the release.
        seconds: how long each wait of helm may take.
        program: reads the program, or the archive of its release.
        chart: reads the chart's archive; for `upgrade`.
        values: of the chart.
    """

    verb: str
    name: str
    namespace: str
    seconds: float
    program: Callable[[], bytes] = field(repr=False)
    chart: Callable[[], bytes] | None = field(default=None, repr=False)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Helm(Protocol):
    """Runs helm against one API."""

    def run(self, task: HelmTask, emit: Callable[[str], None], cancel: Cancel) -> tuple[int, tuple[str, ...]]:
        """Return the exit status and the last lines of output.

        Raises:
            Permanent: the program cannot run here, or is of another major version.
        """


class LocalHelm:
    """The program helm on this machine; a Helm.

    Args:
        endpoint: the API.
        kubeconfig: returns the endpoint as the text of a kubeconfig.
    """

    def __init__(self, endpoint: KubeEndpoint, kubeconfig: Callable[[KubeEndpoint], str]) -> None:
        self._endpoint = endpoint
        self._kubeconfig = kubeconfig

    def run(self, task: HelmTask, emit: Callable[[str], None], cancel: Cancel) -> tuple[int, tuple[str, ...]]:
        """Return the exit status and the last lines of output; see Helm."""
        with private_folder() as folder:
            program = unpacked(folder, task.program())
            environment = {"HOME": str(folder), "LC_ALL": "C", "NO_COLOR": "1", "PATH": os.defpath}
            check_major(program, environment)
            write(folder / "kubeconfig", self._kubeconfig(self._endpoint).encode())
            environment["KUBECONFIG"] = str(folder / "kubeconfig")
            return _watched([str(program), *arguments(folder, task)], environment, task.seconds, emit, cancel)


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a folder of this user that is gone afterwards; programs run there, unlike in many a /tmp."""
    root = download_folder()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="helm-", dir=root) as folder:  # mode 0700
        yield Path(folder)


def write(file: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that has its mode from the first byte on."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as target:
        target.write(data)


def unpacked(folder: Path, data: bytes) -> Path:
    """Write the program into a folder, out of the archive of its release where it is one.

    Raises:
        Permanent: the archive has no helm.
    """
    program = folder / "helm"
    if data[:2] == _GZIP:
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
                members = (member for member in archive if member.isfile())
                member = next((one for one in members if Path(one.name).name == "helm"), None)
                stream = archive.extractfile(member) if member is not None else None
                data = stream.read() if stream is not None else b""
        except (tarfile.TarError, OSError, EOFError):
            data = b""
    if not data:
        raise Permanent(_unfit("its archive has no program helm"))
    write(program, data, 0o700)
    return program


def check_major(program: Path, environment: Mapping[str, str]) -> int:
    """Return the major version of the program.

    Raises:
        Permanent: it does not run here, or its options are not known to us.
    """
    try:
        process = subprocess.run(
            [str(program), "version", "--template", "{{.Version}}"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GRACE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not answer"
        raise Permanent(_unfit(f"it does not run on this machine: {reason}")) from None
    text = process.stdout.decode("utf-8", "replace").strip()
    match = _VERSION.match(text)
    if match is None or int(match[1]) not in MAJORS:
        raise Permanent(_unfit(f"its version is {text[:80]!r}, and Helm 3 and 4 are known"))
    return int(match[1])


def _unfit(reason: str) -> Diagnostic:
    return Diagnostic(
        "HELM_UNFIT",
        f"the program helm cannot be used: {reason}",
        untouched="Nothing was changed in the cluster.",
        remedy="declare `cluster.helm.version` of Helm 3 or 4, or a program of this machine's platform as"
        " cluster.helm.binary",
    )


def arguments(folder: Path, task: HelmTask) -> list[str]:
    """Return the arguments of a task; its files are written into the folder.

    A failed installation is not rolled back and not removed: its objects are what shows the cause.
    """
    scope = ["--namespace", task.namespace, "--timeout", f"{task.seconds:.0f}s"]
    if task.verb == "uninstall":
        # Helm 4 takes a word behind `=`; without one, both wait until the objects are gone.
        return ["uninstall", task.name, *scope, "--wait", "--ignore-not-found"]
    if task.chart is None:
        raise ValueError(f"{task.name}: helm needs a chart")
    chart, values = folder / "chart.tgz", folder / "values.json"
    write(chart, task.chart())
    write(values, json.dumps(task.values, sort_keys=True).encode())
    options = ["--install", "--create-namespace", "--reset-values", "--hide-notes", "--history-max", "10"]
    return ["upgrade", task.name, str(chart), *scope, *options, "--values", str(values)]


def render(program: Path, chart: Path, name: str, values: Mapping[str, Any], kubernetes: str) -> str:
    """Return the objects of a chart as YAML text; nothing is asked of a cluster.

    Args:
        program: helm, or the archive of its release.
        chart: its archive.
        name: of the release.
        values: of the chart.
        kubernetes: version of the cluster, which charts look at; empty for what helm assumes.

    Raises:
        Permanent: HELM_UNFIT; CHART_NOT_RENDERED.
    """
    with private_folder() as folder:
        helm = unpacked(folder, program.read_bytes())
        environment = {"HOME": str(folder), "LC_ALL": "C", "NO_COLOR": "1", "PATH": os.defpath}
        check_major(helm, environment)
        write(folder / "values.json", json.dumps(values, sort_keys=True).encode())
        command = [str(helm), "template", name, str(chart), "--namespace", name]
        command += ["--values", str(folder / "values.json"), "--skip-tests"]
        command += ["--kube-version", kubernetes] if kubernetes else []
        process = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RENDER_SECONDS,
            check=False,
        )
        if process.returncode == 0:
            return process.stdout.decode("utf-8", "replace")
        lines = process.stderr.decode("utf-8", "replace").splitlines()
        summary = f"helm cannot render the chart {name}"
        remedy = "correct the values of the chart, or use another version of helm"
        raise Permanent(Diagnostic("CHART_NOT_RENDERED", summary, evidence=tuple(lines[-5:]), remedy=remedy))


def _watched(
    command: list[str],
    environment: Mapping[str, str],
    seconds: float,
    emit: Callable[[str], None],
    cancel: Cancel,
) -> tuple[int, tuple[str, ...]]:
    """Run a command, hand out its lines, and ask it to end when the run must leave.

    It is a session of its own: where this process is killed, helm brings its release to an end.
    """
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        lines: deque[str] = deque(maxlen=KEPT_LINES)
        until = time.monotonic() + seconds + GRACE_SECONDS
        has_ended = False
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_SECONDS):
                    data = os.read(process.stdout.fileno(), 65536)
                    *whole, rest = (rest + data).split(b"\n")
                    for line in whole if data else [*whole, rest]:
                        text = line.decode("utf-8", "replace").rstrip()
                        if text:
                            lines.append(text)
                            emit(text)
                    if not data:
                        break
                if not has_ended and (cancel.leaving or time.monotonic() > until):
                    has_ended = True
                    until = time.monotonic() + GRACE_SECONDS
                    process.send_signal(signal.SIGTERM)  # helm then marks the release as failed
                elif has_ended and time.monotonic() > until:
                    process.kill()
                    until = float("inf")
        return process.wait(), tuple(lines)
