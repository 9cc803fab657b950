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

from provision.kube.queries import Live

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


def releases_of(secrets: Iterable[Live]) -> tuple[Release, ...]:
    """Return the newest revision of each release; what cannot be read is left out."""
    newest: dict[tuple[str, str], Release] = {}
    for secret in secrets:
        release = _release(secret)
        if release is None:
            continue
        key = (release.namespace, release.name)
        if key not in newest or newest[key].revision < release.revision:
            newest[key] = release
    return tuple(newest[key] for key in sorted(newest))


def _release(secret: Live) -> Release | None:
    """Return what a Secret of Helm holds: base64 in the Secret, base64 of Helm's own, gzip, JSON."""
    text = secret.at("data", "release")
    try:
        packed = base64.b64decode(base64.b64decode(str(text), validate=True), validate=True)
        data = json.loads(_unpacked(packed))
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error):
        return None
    if not isinstance(data, Mapping):
        return None
    chart, info = _inner(_inner(data, "chart"), "metadata"), _inner(data, "info")
    revision = data.get("version")
    return Release(
        str(data.get("name") or secret.labels.get("name", "")),
        str(data.get("namespace") or secret.metadata.get("namespace", "")),
        str(chart.get("name") or ""),
        str(chart.get("version") or ""),
        revision if isinstance(revision, int) else 0,
        str(info.get("status") or secret.labels.get("status", "")),
    )


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
