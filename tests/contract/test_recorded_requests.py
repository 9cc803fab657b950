"""Every request that we can make was answered by a real Proxmox VE once, or is listed with its reason."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from provision.contracts.remedy import Request
from provision.proxmox import privileges
from provision.proxmox.privileges import Call
from tests.contract.test_proxmox_requests import requests

__all__ = ["requests"]  # a fixture

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "pve-api"
LISTED = HERE / "unrecorded_requests.txt"
SUCCESS = range(200, 300)

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="../shared/pve-api is absent")

Sent = tuple[str, str, str]
"""Method, path as in the table of privileges, and a parameter without its number; empty for the request."""


def call_of(method: str, path: str) -> Call | None:
    return next((call for call in privileges.CALLS if call.match(Request(method, path)) is not None), None)


def parts(method: str, path: str, parameters: Iterator[str]) -> Iterator[Sent]:
    call = call_of(method, path)
    if call is not None:
        yield method, call.path, ""
        for name in parameters:
            yield method, call.path, re.sub(r"\d+$", "[n]", name)


@pytest.fixture(scope="module")
def recorded() -> set[Sent]:
    """Return what Proxmox VE 9.2.11 has carried out."""
    found: set[Sent] = set()
    for file in sorted(SHARED.glob("recorded-*.jsonl.gz")):
        with gzip.open(file, "rt") as lines:
            for exchange in map(json.loads, lines):
                if exchange["status"] in SUCCESS:
                    path = unquote(exchange["path"].partition("?")[0])
                    form = exchange["form"] if isinstance(exchange["form"], dict) else {}
                    names = {**exchange["query"], **form}
                    found.update(parts(exchange["method"], path, iter(names)))
    return found


def listed() -> dict[Sent, str]:
    """Return the exceptions: METHOD PATH PARAMETER (- for the request itself): reason."""
    found: dict[Sent, str] = {}
    for line in LISTED.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            request, _, reason = line.partition(": ")
            method, path, name = request.split()
            found[method, path, "" if name == "-" else name] = reason
    return found


def test_every_request_of_ours_has_a_recorded_answer_or_is_listed(
    recorded: set[Sent], requests: list[tuple[str, str, dict[str, Any]]]
) -> None:
    ours = {(call.method, call.path, "") for call in privileges.CALLS}
    for method, path, data in requests:
        assert call_of(method, path) is not None, f"{method} {path} is not in the table of privileges"
        ours.update(parts(method, path, iter(data)))
    assert sorted(ours - recorded) == sorted(listed())


def test_every_exception_has_its_reason() -> None:
    assert [request for request, reason in listed().items() if not reason.strip()] == []
