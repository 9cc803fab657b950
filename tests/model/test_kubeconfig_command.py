"""`provision kubeconfig`: the cluster under its own name, beside what is there, for its owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provision.api.cluster_access import write_kubeconfig
from provision.connections.kubeconfig import endpoint_of
from provision.values.cancel import Cancel
from provision.values.errors import Permanent
from tests.model.k3s_site import K3sSite

OTHER = """
current-context: work
clusters: [{name: work, cluster: {server: "https://work"}}, {name: cluster, cluster: {server: "https://old"}}]
contexts: [{name: work, context: {cluster: work, user: work}}]
users: [{name: work, user: {token: abc}}]
preferences: {colors: true}
"""


def test_the_cluster_is_put_beside_others_under_its_name(tmp_path: Path) -> None:
    model = K3sSite(tmp_path)
    model.apply()
    path = tmp_path / "kube" / "config"
    path.parent.mkdir()
    path.write_text(OTHER)
    url = write_kubeconfig(model.site(), path, "cluster", Cancel())
    assert url == "https://198.51.100.1:6443", "loopback is of no use here"
    data = yaml.safe_load(path.read_text())
    assert [entry["name"] for entry in data["clusters"]] == ["work", "cluster"]
    assert data["preferences"] == {"colors": True}
    assert path.stat().st_mode & 0o777 == 0o600
    assert endpoint_of(path.read_text(), where=str(path)).url == url
    first = path.read_text()
    write_kubeconfig(model.site(), path, "cluster", Cancel())
    assert path.read_text() == first


def test_a_cluster_that_is_not_up_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="k3s has not started on s1 yet"):
        write_kubeconfig(K3sSite(tmp_path).site(), tmp_path / "config", "cluster", Cancel())
    assert not (tmp_path / "config").exists()


def test_a_file_that_is_no_kubeconfig_stays_as_it_is(tmp_path: Path) -> None:
    model = K3sSite(tmp_path)
    model.apply()
    path = tmp_path / "config"
    path.write_text("- a list\n")
    with pytest.raises(Permanent, match="KUBECONFIG_INVALID"):
        write_kubeconfig(model.site(), path, "cluster", Cancel())
    assert path.read_text() == "- a list\n"
