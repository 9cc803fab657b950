"""Every place on a host that the product names: read from its source, so that no list has to be kept.

A field of a text counts as anything (`/etc/modprobe.d/provision-*.conf`).
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOMAINS = ("dhcp", "gpu", "hosts", "k3s", "kube", "proxmox", "rdma", "sharing")
"""Folders of the product whose code changes hosts."""
_PLACE = re.compile(r"[*/][\w*.@+{}/-]*")
_NAME = re.compile(r"[.\d]*[*]?-?\.?provision-[\w*.-]*")
"""A file's name whose folder is declared (a router's, a storage's)."""


def places() -> tuple[str, ...]:
    """Return the patterns of all paths in the code of the domains, sorted; checks only look."""
    found = set()
    for domain in DOMAINS:
        for path in (ROOT / "provision" / domain).rglob("*.py"):
            if "checks" not in path.parts:
                found |= set(_places(ast.parse(path.read_text())))
    return tuple(sorted(found))


def own_places() -> tuple[str, ...]:
    """Return the patterns of what bears our name: nothing else may have such a path."""
    return tuple(place for place in places() if "provision" in place)


def is_named(path: str) -> bool:
    """Whether the code names a path."""
    return any(fnmatchcase(path, place) for place in places())


def scan() -> str:
    """Return shell text that prints what a machine has of ours, beside the notes of what was before.

    Private keys are looked for wherever a run could have put them, whatever their names; the machine's own
    host keys are its own.
    """
    names = " -o ".join(f"-path {shlex.quote(place)}" for place in own_places() if place[-1] not in "/-")
    return (
        f"find / -xdev \\( {names} \\) ! -type d ! -path '/var/lib/provision/saved/*.entry' -print\n"
        "grep -rsIlE -e '-----BEGIN [A-Z ]*PRIVATE KEY' /etc /root /home /run /srv /tmp /var |"
        " grep -v '^/etc/ssh/ssh_host_' || :\n"
    )


def _places(tree: ast.Module) -> Iterator[str]:
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if _NAME.fullmatch(text):
            yield f"*/{text}*"
        elif _PLACE.fullmatch(text) and text.strip("*/"):
            yield text
