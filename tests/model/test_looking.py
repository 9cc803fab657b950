"""While nothing acts, the first Ctrl-C ends the run: plan, verify, and apply before its plan is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision.api import Options, Site
from provision.api.domains import load_inventory as load
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell
from provision.values.cancel import Cancel, Interrupted
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: two
access: { user: root }
nodes:
  n1: { address: 198.51.100.1, hostname: n1, swap: off }
  n2: { address: 198.51.100.2, hostname: n2, swap: off }
"""


@pytest.fixture
def models(tmp_path: Path) -> ModelSite:
    file = tmp_path / "two.yaml"
    file.write_text(INVENTORY)
    return ModelSite(load(file), tmp_path / "state", checks=True)


def plan(site: Site, cancel: Cancel) -> object:
    return site.plan(Options(), lambda _: None, cancel)


def verify(site: Site, cancel: Cancel) -> object:
    return site.verify(Options(), lambda _: None, cancel)


def apply(site: Site, cancel: Cancel) -> object:
    def confirm(_plan: object) -> bool:
        pytest.fail("a run that must end asks for nothing")

    return site.apply(None, Options(), lambda _: None, cancel, confirm)


@pytest.mark.parametrize("call", [plan, verify, apply])
def test_the_first_interrupt_ends_what_only_looks(
    models: ModelSite, call: Callable[[Site, Cancel], object]
) -> None:
    site, cancel = models.site(), Cancel()
    cancel.drain()
    try:
        with pytest.raises(Interrupted):
            call(site, cancel)
    finally:
        site.close()
    assert all(host.round_trips == 0 for host in models.hosts.values())


@pytest.mark.parametrize("call", [plan, apply])
def test_an_interrupt_with_the_last_answer_ends_it_too(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch, call: Callable[[Site, Cancel], object]
) -> None:
    site, cancel = models.site(), Cancel()
    host = models.hosts["n2/ssh"]
    answer = host.answer

    def last(queries: frozenset[Any], inner: Cancel) -> Snapshot:
        found = answer(queries, inner)
        cancel.drain()
        return found

    monkeypatch.setattr(host, "answer", last)
    try:
        with pytest.raises(Interrupted):
            call(site, cancel)
    finally:
        site.close()


def test_an_interrupt_amid_the_checks_ends_them_without_a_failure(models: ModelSite) -> None:
    site, cancel = models.site(), Cancel()
    told: list[object] = []
    observed = models.hosts["n1/ssh"].answers[Shell]

    def interrupted(state: object, query: object) -> object:
        cancel.drain()
        return observed(state, query)  # type: ignore[arg-type]  # the double takes any state

    models.hosts["n1/ssh"].answers[Shell] = interrupted
    try:
        with pytest.raises(Interrupted):
            site.verify(Options(), told.append, cancel)
    finally:
        site.close()
    assert not [each for each in told if "failed" in str(each)]
