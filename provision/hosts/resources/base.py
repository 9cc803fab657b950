"""What the host resources share: checks of names, changes for unanswered questions, deadlines."""

from __future__ import annotations

import re
from functools import lru_cache

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Impossible
from provision.values.diagnostics import Diagnostic, Source

_PATH = re.compile(r"/(?:[^\x00-\x1f\x7f\\/]+(?:/[^\x00-\x1f\x7f\\/]+)*)?")
_UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,255}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:-]{0,254}")


@lru_cache(maxsize=65536)
def checked_path(path: str) -> str:
    """Return an absolute, plain path.

    Raises:
        ValueError: it is relative, not normal, or holds control bytes or a backslash.
    """
    if _PATH.fullmatch(path) is None or any(part in (".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is no plain absolute path")
    return path


@lru_cache(maxsize=4096)
def checked_unit(name: str) -> str:
    """Return a unit's full name; `.service` may be left out.

    Raises:
        ValueError: it is no unit name.
    """
    if _UNIT.fullmatch(name) is None or name.startswith("-"):
        raise ValueError(f"{name!r} is no unit name")
    suffix = name.rpartition(".")[2]
    known = ("service", "socket", "timer", "mount", "target", "path", "slice", "swap", "automount", "device")
    return name if "." in name and suffix in known else f"{name}.service"


@lru_cache(maxsize=4096)
def checked_name(name: str) -> str:
    """Return the name of a package or kernel module.

    Raises:
        ValueError: it is none.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no plain name")
    return name


def unknown(path: str, answer: Unknown, wanted: object) -> Change:
    """Return the change of a field that nobody could read."""
    return Change(Op.ATTENTION, path, f"unknown: {answer.reason}", wanted)


def cannot_tell(key: Key, reason: str, source: Source | None) -> Impossible:
    """Return the remedy of a resource whose state could not be read: none."""
    return Impossible(
        Diagnostic(
            "UNKNOWN",
            f"{key.kind} {key.name} could not be read: {reason}",
            subject=key.system,
            source=source,
            untouched="nothing of it was changed",
            remedy="see the reason, then run again",
        )
    )


def first_line(data: bytes, fallback: str) -> str:
    """Return the first non-empty line of some output as text."""
    for line in data.decode("utf-8", "replace").splitlines():
        if line.strip():
            return line.strip()[:200]
    return fallback


def why(frame: Frame, question: str) -> Unknown:
    """Return why a fragment gave no answer."""
    if frame.rc is None:
        return Unknown(f"the connection was cut before {question} was answered")
    if frame.dropped:
        return Unknown(f"the answer about {question} was too long")
    return Unknown(first_line(frame.stderr, f"no answer about {question}"))
