# ruff: noqa: E501 - an answer as a host sends it
"""Answers about k3s: whatever a host says is read without an error, and garbage is never a fact."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from provision.contracts.query import Frame, Unknown
from provision.k3s.queries import (
    KINDS,
    JoinToken,
    LastWords,
    Machine,
    MachineStatus,
    ServiceLog,
    authority_of,
    password_of,
)
from provision.k3s.settings_query import K3sSettings, SettingPlaces
from provision.k3s.snapshots import EtcdSnapshots, SnapshotListing

QUERIES = (Machine(), ServiceLog("k3s.service"), JoinToken("/t"), EtcdSnapshots("/d"), K3sSettings())
WHOLE = b"address|eth0|10.0.0.1/24\ndynamic|10.0.0.1\nroute|default|eth0\nfilter|iptables-nft|0\ndrop|iptables-nft|-P FORWARD DROP\nforeign|kubeadm|/etc/kubernetes/kubelet.conf\nflag|/usr/local/bin/k3s\nflag|'--disable' 'traefik'\ninotify|128\ncgroup|2|cpuset cpu memory\ndata|ext2/ext3|41\noverlay|yes\nversion|v1.35.7+k3s1\ndone|\n"


def test_a_machine_is_read_field_by_field() -> None:
    answer: Any = KINDS[Machine.kind].parse(Frame(WHOLE, b"", 0), [Machine()])[Machine()]
    assert answer == MachineStatus(
        (("eth0", "10.0.0.1/24"),), ("10.0.0.1",), (("default", "eth0"),),
        (("iptables-nft", 0, ("-P FORWARD DROP",)),), ("kubeadm (/etc/kubernetes/kubelet.conf)",),
        ("/usr/local/bin/k3s", "--disable", "traefik"), 128, 2,
        controllers=("cpuset", "cpu", "memory"), filesystem="ext2/ext3",
    )  # fmt: skip
    assert answer.used == 41
    assert answer.version == "v1.35.7+k3s1"
    assert answer.interface_of("10.0.0.1") == "eth0"
    assert answer.interface_of("10.0.0.2") == ""


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)), st.sampled_from([0, 1, None]))
@settings(max_examples=60, deadline=None)
def test_garbage_and_cut_answers_are_unknown_and_never_an_error(
    data: bytes, cut: int, code: int | None
) -> None:
    for text in (data, WHOLE[:cut], WHOLE[:cut] + data):
        for query in QUERIES:
            answer = KINDS[query.kind].parse(Frame(text, b"", code), [query])[query]
            assert isinstance(
                answer,
                Unknown | MachineStatus | LastWords | SecretStr | SnapshotListing | SettingPlaces | None,
            )
    if cut < len(WHOLE):
        answer = KINDS[Machine.kind].parse(Frame(WHOLE[:cut], b"", code), [Machine()])[Machine()]
        assert isinstance(answer, Unknown)


def test_snapshots_of_before_a_rotation_need_the_former_token() -> None:
    text = b"folder|/d\nfile|200|7|b\nfile|100|5|a|c\nfile|x|5|d\nfile|1|-5|e\ntoken|1970-01-01T00:02:30Z\ntoken|x\ndone|\n"
    query = EtcdSnapshots("/d")
    answer: Any = KINDS[query.kind].parse(Frame(text, b"", 0), [query])[query]
    assert [(file.name, file.size) for file in answer.files] == [("a|c", 5), ("b", 7)]
    assert [answer.is_of_former_token(file) for file in answer.files] == [True, False]


@pytest.mark.parametrize(
    ("text", "authority", "password"),
    [
        ("K10ab::server:secret", "K10ab", "secret"),
        ("secret", "", "secret"),
        ("a:b", "", "a:b"),
        ("x::server:y", "", "x::server:y"),
    ],
)
def test_a_full_token_has_an_authority_and_a_password(text: str, authority: str, password: str) -> None:
    assert authority_of(SecretStr(text)) == authority
    assert password_of(SecretStr(text)) == SecretStr(password)
