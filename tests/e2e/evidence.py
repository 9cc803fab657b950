"""What explains a failure to who has only the output: the ends of a lab's logs, and the router's services."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

LINES = 30
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
USUAL = Path("/var/lib/provision-lab")
ROUTER = """
for unit in systemd-networkd dnsmasq chrony ssh; do echo "$unit: $(systemctl is-active $unit)"; done
ip -br address; ss -Hlntu; cat /var/lib/misc/dnsmasq.leases
journalctl --no-pager --quiet -n 30 -u systemd-networkd -u dnsmasq -u chrony
"""
_labs: set[Path] = set()
_questions: dict[str, Callable[[], str]] = {}
_shown: dict[str, str] = {}


def watch(labs: Path) -> None:
    """Let a failure of a test tell how the labs in a folder are."""
    _labs.add(labs)


def ask(title: str, question: Callable[[], str]) -> None:
    """Let a failure of a test tell what a question is answered, under a title; the question may fail."""
    _questions[title] = question


def evidence() -> Iterator[tuple[str, str]]:
    """Yield titles and texts of what watched labs say now and did not say at the failure before."""
    for lab in sorted(each for labs in _labs for each in labs.glob("*") if (each / "console").is_dir()):
        logs = [*sorted((lab / "console").glob("*.log")), lab / "daemon.out", lab / "daemon.log"]
        for title, text in (*((str(log), _end(log)) for log in logs), (f"router of {lab}", _router(lab))):
            if text.strip() and _shown.get(title) != text:
                _shown[title] = text
                yield title, text
    for title, question in _questions.items():
        try:
            text = question()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            text = str(error)
        if text:
            yield title, text


def namespace(lab: Path) -> str:
    """Return the network namespace of a lab, as docs/lab.md has it."""
    place = (
        ""
        if lab.parent == USUAL
        else f"@{hashlib.sha256(str(lab.parent.resolve()).encode()).hexdigest()[:8]}"
    )
    return f"provision-{lab.name}{place}"


def _end(log: Path) -> str:
    try:
        lines = COLOUR.sub("", log.read_text(errors="replace")).splitlines()
    except OSError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-LINES:])


def _router(lab: Path) -> str:
    """Ask inside the router's container, for its sshd may be what failed."""
    init = _init(Path("/run/netns") / f"{namespace(lab)}.router")
    if init is None:
        return "does not run"
    argv = ["nsenter", f"--target={init}", "--all", "sh", "-c", ROUTER]
    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "does not answer"
    return result.stdout + result.stderr


def _init(space: Path) -> int | None:
    """Return the first process of the container that has a network namespace."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            inside = (status.parent / "ns/net").stat().st_ino == space.stat().st_ino
            if inside and status.read_text().split("NSpid:")[1].splitlines()[0].split()[1:] == ["1"]:
                return int(status.parent.name)
    return None
