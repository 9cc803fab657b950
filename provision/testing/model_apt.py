"""The archives of a host in memory: what apt has, and what a transaction would do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from provision.gpu.queries import upstream
from provision.hosts.queries.apt import Move
from provision.testing.model_state import HostState

Answer = tuple[int, str]


def transaction(state: HostState, requests: Sequence[str]) -> list[Move] | str:
    """Return what apt would do for some requests, or the error that it ends with.

    What comes along has the driver's version of what pulls it, where the archive has that.
    """
    coming: dict[str, str] = {}
    for request in requests:
        name, _, version = request.partition("=")
        versions = [offered for offered, _ in state.archive.get(name, ())]
        if not versions:
            return f"E: Unable to locate package {name}"
        if version and version not in (*versions, state.packages.get(name)):
            return f"E: Version '{version}' for '{name}' was not found"
        _come(state, name, version or state.packages.get(name) or versions[0], coming)
    moves = [
        Move(name, state.packages.get(name, ""), version)
        for name, version in coming.items()
        if state.packages.get(name) != version
    ]
    going = {other for name in coming for other in state.conflicts.get(name, ()) if state.packages.get(other)}
    return [*(Move(name, state.packages[name]) for name in sorted(going)), *moves]


def _come(state: HostState, name: str, version: str, coming: dict[str, str]) -> None:
    if name in coming:
        return
    coming[name] = version
    for other in state.pulls.get(name, ()):
        versions = [offered for offered, _ in state.archive.get(other, ())] or ["1.0"]
        same = [offered for offered in versions if upstream(offered) == upstream(version)]
        _come(state, other, (same or versions)[0], coming)


def policy_text(state: HostState, words: str) -> Answer:
    """Return what `apt-cache policy` prints of all archives, then of some packages."""
    origins = sorted({origin for versions in state.archive.values() for _, origin in versions})
    lines = ["Package files:", " 100 /var/lib/dpkg/status", "     release a=now"]
    for origin in origins:
        lines += [f" 500 {_archive(origin)}", f"     release v=1,o={origin},a=stable,c=main,b=amd64"]
    lines.append("@packages")
    for name in shlex.split(words):
        versions = dict(state.archive.get(name, ()))
        installed = state.packages.get(name, "")
        if not versions and not installed:
            continue
        lines += [f"{name}:", f"  Installed: {installed or '(none)'}", "  Candidate: x", "  Version table:"]
        for version in dict.fromkeys((*versions, *([installed] if installed else []))):
            lines.append(f" {'***' if version == installed else '   '} {version} 500")
            if version in versions:
                lines.append(f"        500 {_archive(versions[version])}")
    return 0, "".join(f"{line}\n" for line in lines)


def _archive(origin: str) -> str:
    return f"https://{origin.lower()}.test stable/main amd64 Packages"


def simulation_text(state: HostState, words: str) -> Answer:
    """Return what `apt-get -s install` prints."""
    moves = transaction(state, shlex.split(words))
    if isinstance(moves, str):
        return 100, f"{moves}\n"
    return 0, "".join(map(_line, moves))


def _line(move: Move) -> str:
    old = f" [{move.old}]" if move.old else ""
    return f"Inst {move.name}{old} ({move.new} x [amd64])\n" if move.new else f"Remv {move.name}{old}\n"


def dpkg_text(state: HostState) -> Answer:
    """Return all packages with their state words, as `dpkg-query` prints them."""
    rows = (
        f"{'h' if name in state.held else 'i'}i |{name}|{version}\n"
        for name, version in sorted(state.packages.items())
        if version
    )
    return 0, "".join(rows)


def uris_text(state: HostState) -> tuple[int, str]:
    """Return what apt would fetch of Proxmox VE: after our command has run, what needs no subscription."""
    is_free = any("--print-uris" in probe and not code for probe, code in state.probes.items())
    host, component = (
        ("http://download.proxmox.com", "pve-no-subscription")
        if is_free
        else ("https://enterprise.proxmox.com", "pve-enterprise")
    )
    return 0, f"'{host}/debian/pve/dists/trixie/{component}/binary-amd64/Packages.xz' Packages 0\n"
