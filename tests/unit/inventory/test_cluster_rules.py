from __future__ import annotations

import pytest

from provision.values.errors import UsageError

from .conftest import Loads

HEAD = "version: 1\nname: site\nnodes:\n"


def nodes(count: int) -> str:
    return "".join(f"  s{n}: {{ address: 10.0.0.{n}, k3s: server }}\n" for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("servers", "k3s", "words"),
    [
        (2, "endpoint: k3s.lab", "2 k3s servers survive no more failures than 1"),
        (4, "endpoint: k3s.lab", "4 k3s servers survive no more failures than 3"),
        (3, "", "lacks the key 'endpoint'"),
        (3, "datastore: sqlite", "works with one k3s server only"),
        (1, "config: { node-name: x }", "'node-name' follows from other keys"),
        (1, "config: { token: x }", "'token' follows from other keys"),
        (1, "snapshots: { schedule: often }", "is not a schedule of crontab(5)"),
        (3, "endpoint: 10.0.0.100", ""),
        (1, "config: { secrets-encryption: true }", ""),
        (1, "datastore: etcd", ""),
        (1, "registries: { configs: null }", "expected a table of registries as 'configs'"),
        (1, "registries: { mirrors: [docker.io] }", "expected a table of registries as 'mirrors'"),
        (1, "registries: { configs: { nvcr.io: null } }", "expected a table of settings of 'nvcr.io'"),
        (1, "registries: { configs: { nvcr.io: {} }, mirrors: {} }", ""),
    ],
)
def test_what_a_cluster_cannot_be_is_refused(loads: Loads, servers: int, k3s: str, words: str) -> None:
    text = f"{HEAD}{nodes(servers)}k3s: {{ version: v1.35.7+k3s1, {k3s} }}\n"
    if not words:
        assert loads(text).k3s is not None
        return
    with pytest.raises(UsageError) as caught:
        loads(text)
    assert [words in diagnostic.summary for diagnostic in caught.value.diagnostics] == [True]
