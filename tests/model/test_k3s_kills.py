"""The controller dies after each thing that k3s's roles do; the next run finishes the same cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from provision.engine.model import RunReport
from provision.k3s import paths
from tests.model.k3s_site import PAIR, K3sSite
from tests.model.model_site import DeadError, Life

Act = Callable[[K3sSite], RunReport]


def built(folder: Path) -> K3sSite:
    site = K3sSite(folder, PAIR)
    assert site.apply().exit_code == 0
    site.life = Life()
    return site


def configured(folder: Path) -> K3sSite:
    site = built(folder)
    site.declare(folder, PAIR, ", disable: [traefik], config: { kubelet-arg: [v=1] }")
    return site


def left(folder: Path) -> K3sSite:
    site = built(folder)
    site.declare(folder, PAIR.replace(", k3s: agent", ", timezone: Etc/UTC"))
    return site


KINDS: dict[str, tuple[Callable[[Path], K3sSite], Act, int]] = {
    "first": (lambda folder: K3sSite(folder, PAIR), K3sSite.apply, 15),
    "configuration": (configured, K3sSite.apply, 2),
    "token": (built, K3sSite.rotate, 4),
    "left": (left, K3sSite.apply, 1),
}
"""How each site is made, what is killed, and the fewest outcomes that it has."""


def outcomes(life: Life) -> list[int]:
    """Return the boundaries right after something was done."""
    lines = enumerate(life.log, 1)
    return [number for number, line in lines if line.endswith(" done") or line.startswith("after ")]


def shape(site: K3sSite) -> str:
    """Return what two equal clusters have in common: all but the tokens that each makes of its own."""
    files = {
        (name, path): (entry.content if "token" not in path and "password" not in path else b"", entry.mode)
        for name, host in site.hosts.items()
        for path, entry in host.state.files.items()
        if "k3s" in path or "rancher" in path
    }
    units = {
        (name, unit): (state.active, state.file)
        for name, host in site.hosts.items()
        for unit, state in host.state.units.items()
        if unit.startswith("k3s")
    }
    text = f"{sorted(files.items())} {sorted(units.items())}"
    return re.sub(r"certificate-authority-data: \S+|client-\w+-data: \S+", "", text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_dies_anywhere_is_finished_by_the_next(kind: str, tmp_path: Path) -> None:
    make, act, least = KINDS[kind]
    whole = make(tmp_path / "whole")
    assert act(whole).exit_code == 0
    boundaries = outcomes(whole.life)
    assert len(boundaries) >= least, whole.life.log
    for boundary in boundaries:
        site = make(tmp_path / str(boundary))
        site.life.kill_at = boundary
        with suppress(DeadError):
            act(site)
        where = f"{boundary}: {site.life.log[-1]}"
        site.life = Life()
        report = site.apply()
        problems = [d for step in report.steps for d in step.diagnostics]
        assert report.exit_code == 0, (where, problems)
        assert site.plan().empty, where
        if kind != "token":
            assert shape(site) == shape(whole), where
        if paths.TOKEN in site.hosts["a1/ssh"].state.files:
            assert site.token("a1") == site.token("s1") == site.cluster_token("s1").rpartition(":")[2], where
