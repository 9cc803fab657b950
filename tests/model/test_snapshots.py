"""Snapshots of etcd: listed from all servers, and the tokens that they need."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from provision.api.cluster_snapshots import kept_snapshots, rows
from provision.k3s import paths
from provision.report.snapshots import age_text, size_text
from provision.testing.model_k3s import NOW
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from tests.model.k3s_site import PAIR, TRIO, K3sSite

ENDPOINT = ", endpoint: 198.51.100.100"


@pytest.fixture
def trio(tmp_path: Path) -> K3sSite:
    site = K3sSite(tmp_path, TRIO, ENDPOINT)
    assert site.apply().exit_code == 0
    return site


def test_each_server_lists_its_own_and_a_silent_one_is_named(trio: K3sSite) -> None:
    files = {"etcd-snapshot-1": b"600 4096", "newer": b"60 8192"}
    trio.hosts["s1/ssh"].state.commands["etcd-snapshots"] = files
    trio.silent = {"s3"}
    with closing(trio.site()) as site:
        kept = kept_snapshots(site, NOW, Cancel())
    assert [(row[0], row[1], age_text(row[2]), size_text(row[3])) for row in rows(kept)] == [
        ("s1", "newer", "1 min", "8 KiB"),
        ("s1", "etcd-snapshot-1", "10 min", "4 KiB"),
        ("s2", "etcd-snapshot-1", "10 min", "4 KiB"),
    ]
    assert [server.problem for server in kept] == ["", "", "s3/ssh does not answer"]


def test_a_cluster_with_sqlite_has_no_snapshots(tmp_path: Path) -> None:
    site = K3sSite(tmp_path, PAIR)
    with closing(site.site()) as opened, pytest.raises(UsageError) as refused:
        kept_snapshots(opened, NOW, Cancel())
    assert refused.value.diagnostics[0].code == "SNAPSHOTS_NONE"


def test_every_server_keeps_the_token_that_its_snapshots_need(trio: K3sSite) -> None:
    before = trio.token("s1")
    assert trio.rotate().exit_code == 0
    for name in ("s1", "s2", "s3"):
        noted = trio.text(name, paths.FORMER_TOKENS).split()
        assert noted.count(before) == 1, name
        assert trio.token(name) not in noted
    assert paths.FORMER_TOKENS not in trio.hosts["a1/ssh"].state.files
