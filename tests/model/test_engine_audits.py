"""Audits over the shipped inventories: no forgotten `affects`, no read without an edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provision.api import Options
from provision.api.domains import effect_classes
from provision.contracts.role import Context, Need
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import SystemSpec
from provision.engine import scheduler
from provision.inventory import Inventory
from provision.proxmox.driver import ProxmoxDriver
from provision.values.cancel import Cancel
from tests.model.audits import AnswersAudit, reads_without_edge
from tests.model.model_site import ModelSite
from tests.model.test_engine_sites import credentials, lab
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own


@pytest.fixture(autouse=True)
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    monkeypatch.setattr(scheduler, "WORKERS", 1)


def inventory_of(name: str, folder: Path) -> Inventory:
    return lab(folder) if name == "lab" else credentials(name, folder)


@pytest.mark.parametrize("name", ["lab", "homelab", "h100-pair", "h100-kai"])
def test_what_roles_read_is_true_after_every_step(name: str, tmp_path: Path) -> None:
    model = ModelSite(inventory_of(name, tmp_path), tmp_path / "state")
    site = model.site()

    def fresh(system: str, queries: frozenset[Any]) -> Snapshot:
        if system == "cluster/api":
            return model.cluster.driver(system).answer(queries, Cancel())
        api = model.apis.get(system)
        driver = model.hosts[system] if api is None else ProxmoxDriver(system, api, api.node)
        return driver.answer(queries, Cancel())

    def planned() -> Any:
        return site._planned

    audit = AnswersAudit(site.session, planned, fresh)
    options = Options(steps=tuple(site.environment.roles), allow=frozenset(effect_classes()))
    try:
        report = site.apply(None, options, audit.emit, Cancel(), lambda _: True, ask=model.person)
        assert report.exit_code in {0, 5}
        assert audit.findings == [], "\n".join(audit.findings)
        site.plan(options, lambda _: None, Cancel())
        assert planned().plan.empty
        assert reads_without_edge(planned(), site.session) == []
    finally:
        site.close()


def install(alters: tuple[tuple[str, str], ...]) -> FakeRole:
    return FakeRole(
        "install",
        lambda _: [Item("api", "service", "up", alters=alters)],
        lambda _: {"api": ()},
        subjects=frozenset({"server"}),
    )


def joins(*needs: Need) -> FakeRole:
    def join(context: Context) -> list[Item]:
        token = context.require("server/ssh", Value("token"))
        return [Item(f"{context.subject.name}/ssh", "joined", str(token))]

    reads = {"server/ssh": (Value("token"),), "agent/ssh": ()}
    return FakeRole("join", join, lambda _: reads, needs=needs, subjects=frozenset({"agent"}))


def cluster(*roles: FakeRole) -> FakeSite:
    site = FakeSite(
        list(roles),
        subjects=("server", "agent"),
        hosts={"api": Host(is_api=True), "server/ssh": Host({"token": "old"})},
        specs={"api": SystemSpec("api", "api", "server", {}, here)},
    )

    def on_set(_system: str, name: str, _value: str) -> None:
        if name == "service":
            site.hosts["server/ssh"].values["token"] = "new"

    site.on_set = on_set
    return site


@pytest.mark.parametrize("forgotten", [True, False])
def test_the_audit_finds_a_forgotten_affects(forgotten: bool) -> None:
    alters = () if forgotten else (("server/ssh", "token"),)
    site = cluster(install(alters), joins(Need("install", scope="site")))
    planned = site.plan()
    assert site.session is not None

    def fresh(system: str, queries: frozenset[Any]) -> Snapshot:
        values = site.hosts[system].values
        return Snapshot(system, answers={query: values.get(query.name) for query in queries})

    audit = AnswersAudit(site.session, lambda: planned, fresh)
    site.on_event = audit.emit
    site.apply(planned=planned)
    assert [finding.partition(":")[0] for finding in audit.findings] == (
        ["server", "server"] if forgotten else []
    )
    assert site.hosts["agent/ssh"].values["joined"] == ("old" if forgotten else "new")


@pytest.mark.parametrize("needs", [(), (Need("write", scope="site"),)])
def test_a_read_without_an_edge_is_found(needs: tuple[Need, ...]) -> None:
    write = FakeRole(
        "write", lambda _: [Item("server/ssh", "token", "new")], on_own(), subjects=frozenset({"server"})
    )
    site = cluster(write, joins(*needs))
    planned = site.plan()
    assert site.session is not None
    expected = [] if needs else ["agent: join reads server/ssh, which server: write writes, without an edge"]
    assert reads_without_edge(planned, site.session) == expected
