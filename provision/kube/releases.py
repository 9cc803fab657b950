"""Helm releases as the cluster has them: found by their chart, whoever installed them."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.kube.comparison import differences
from provision.kube.names import SUBJECT
from provision.kube.queries import Live
from provision.values.diagnostics import Diagnostic

LARGEST = 16 * 1024 * 1024
"""Bytes of one unpacked release; Secrets hold at most 1 MiB."""
LABELS = "owner=helm"


@dataclass(frozen=True, slots=True)
class HelmReleases:
    """The newest revision of each release in all namespaces; answer: tuple of Release.

    The driver reads the Secrets in which Helm keeps them and hands out only what Release names: the values of
    a release may be secret.
    """

    kind: ClassVar[str] = "kube-releases"


@dataclass(frozen=True, slots=True)
class Release:
    """One release.

    Args:
        name: of the release.
        namespace: in which it is installed.
        chart: name of its chart.
        version: of its chart.
        revision: how many times it was installed or changed.
        status: `deployed`, `failed`, `pending-install` and so on.
    """

    name: str
    namespace: str
    chart: str
    version: str
    revision: int
    status: str


@dataclass(frozen=True, slots=True)
class ReleaseValues:
    """How the values of a release differ from declared ones; answer: tuple of (path, old, new).

    Empty where there is no such release. What is not declared may be secret: its old value is not shown.

    Args:
        namespace: of the release.
        name: of the release.
        values: JSON text.
    """

    kind: ClassVar[str] = "kube-release-values"
    namespace: str
    name: str
    values: str


HIDDEN = "(set)"
"""Stands for a value that is not declared."""


def releases_of(secrets: Iterable[Live]) -> tuple[Release, ...]:
    """Return the newest revision of each release; what cannot be read is left out."""
    return tuple(release for release, _ in _newest(secrets))


def value_differences(secrets: Iterable[Live], query: ReleaseValues) -> tuple[tuple[str, Any, Any], ...]:
    """Answer a question for the values of a release."""
    declared = json.loads(query.values)
    for release, config in _newest(secrets):
        if (release.namespace, release.name) == (query.namespace, query.name):
            return tuple(
                (path, HIDDEN if new is None else old, new)
                for path, old, new in differences(config, declared)
            )
    return ()


def find_release(releases: Iterable[Release], namespace: str, name: str) -> Release | None:
    """Return the release of a name."""
    return next((one for one in releases if (one.namespace, one.name) == (namespace, name)), None)


def find_other(releases: Iterable[Release], chart: str, namespace: str, name: str) -> Release | None:
    """Return a release of the same chart under another name or in another namespace."""
    same = [one for one in releases if one.chart == chart]
    return next((one for one in same if (one.namespace, one.name) != (namespace, name)), None)


def other_release(other: Release, name: str) -> Diagnostic:
    """Return the problem of a chart that is installed already."""
    return Diagnostic(
        "HELM_RELEASE_EXISTS",
        f"chart {other.chart} is installed as {other.name} in namespace {other.namespace}:"
        " a second release fails on objects of the whole cluster",
        SUBJECT,
        untouched="Nothing was installed.",
        remedy=f"Remove it first: `helm uninstall {other.name} -n {other.namespace}`;"
        f" or declare its namespace, if it is called {name}.",
    )


def _newest(secrets: Iterable[Live]) -> list[tuple[Release, Mapping[str, Any]]]:
    newest: dict[tuple[str, str], tuple[Release, Mapping[str, Any]]] = {}
    for secret in secrets:
        pair = _release(secret)
        if pair is None:
            continue
        key = (pair[0].namespace, pair[0].name)
        if key not in newest or newest[key][0].revision < pair[0].revision:
            newest[key] = pair
    return [newest[key] for key in sorted(newest)]


def _release(secret: Live) -> tuple[Release, Mapping[str, Any]] | None:
    """Return what a Secret of Helm holds: base64 in the Secret, base64 of Helm's own, gzip, JSON."""
    text = secret.at("data", "release")
    try:
        packed = base64.b64decode(base64.b64decode(str(text), validate=True), validate=True)
        data = json.loads(_unpacked(packed))
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error, RecursionError):
        return None
    if not isinstance(data, Mapping):
        return None
    chart, info = _inner(_inner(data, "chart"), "metadata"), _inner(data, "info")
    revision = data.get("version")
    release = Release(
        str(data.get("name") or secret.labels.get("name", "")),
        str(data.get("namespace") or secret.metadata.get("namespace", "")),
        str(chart.get("name") or ""),
        str(chart.get("version") or ""),
        revision if isinstance(revision, int) else 0,
        str(info.get("status") or secret.labels.get("status", "")),
    )
    return release, _inner(data, "config")


def _unpacked(packed: bytes) -> bytes:
    if packed[:2] != b"\x1f\x8b":
        return packed
    reader = zlib.decompressobj(wbits=31)
    data = reader.decompress(packed, LARGEST)
    if reader.unconsumed_tail:
        raise ValueError("too large")
    return data


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def packed(release: Release, values: Mapping[str, Any]) -> str:
    """Return a release as Helm writes it into `data.release` of its Secret; for doubles."""
    data = {
        "name": release.name,
        "namespace": release.namespace,
        "version": release.revision,
        "info": {"status": release.status},
        "chart": {"metadata": {"name": release.chart, "version": release.version}},
        "config": values,
    }
    inner = base64.b64encode(gzip.compress(json.dumps(data).encode()))
    return base64.b64encode(inner).decode()
