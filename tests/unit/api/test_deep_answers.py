"""JSON that is nested without end, where a program of a host or an object of a cluster may hold it."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from provision.api.bootstrap import _secret_of
from provision.kube.comparison import _json
from provision.kube.queries import Live
from provision.kube.releases import _release
from provision.kube.resources.release import _values
from provision.proxmox.discovery import agent_address
from provision.proxmox.reboot_facts import _object

DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("read", "nothing"),
    [
        (lambda: _secret_of(DEEP.encode()), None),
        (lambda: _json(DEEP), None),
        (lambda: _values(DEEP), {}),
        (lambda: agent_address(DEEP, "BC:24:11:00:00:01"), ""),
        (lambda: _object(DEEP), {}),
        (lambda: _release(Live.of({"data": {"release": _packed(DEEP)}})), None),
    ],
    ids=["pveum", "an annotation", "values", "qm guest cmd", "ip and lsblk", "a release of Helm"],
)
def test_it_reads_as_nothing(read: Callable[[], object], nothing: object) -> None:
    assert read() == nothing


def _packed(text: str) -> str:
    return base64.b64encode(base64.b64encode(text.encode())).decode()
