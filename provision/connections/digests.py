"""SHA-256 of files as their vendors publish them: lists of sums, indexes of charts, OCI registries.

Sources: sha256sum(1); helm.sh (The Chart Repository Guide, Use OCI-based registries); the distribution
specification of the Open Container Initiative (pulling manifests).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import urljoin, urlsplit

from provision.connections.download import digest_of, document, kept
from provision.connections.registry import LARGEST, MANIFEST, Repository
from provision.connections.registry_logins import Logins
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_HEX = re.compile("[0-9a-f]{64}").fullmatch
_SUM = re.compile(r"([0-9A-Fa-f]{64}) [ *](\S.*)").fullmatch


def listed_digest(sums: str, name: str, cancel: Cancel) -> str:
    """Return the SHA-256 of a file from the list beside it.

    Raises:
        Permanent: `DIGEST_NOT_LISTED`: the list does not name it.
        Permanent, Transient: the list cannot be downloaded.
    """
    text = document(sums, cancel, LARGEST).decode("utf-8", "replace")
    for line in text.splitlines():
        match = _SUM(line.strip())
        if match is not None and match[2].removeprefix("./") == name:
            return match[1].lower()
    raise _unlisted(f"{sums} has no line for {name}")


def chart_of_repository(repository: str, chart: str, version: str, cancel: Cancel) -> tuple[str, str]:
    """Return URL and SHA-256 of a chart's archive, from the index of its repository.

    An index without digests is legal; then the archive itself is read.

    Raises:
        Permanent: `DIGEST_NOT_LISTED`: the index does not have this version.
        Permanent, Transient: the index or the archive cannot be downloaded.
    """
    import yaml  # noqa: PLC0415 - slow: only when a chart is pinned

    base = repository.rstrip("/") + "/"
    index = f"{base}index.yaml"
    try:
        # Large indexes take the Python loader minutes.
        data = yaml.load(document(index, cancel, LARGEST), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, UnicodeDecodeError):
        raise _unlisted(f"{index} is not the index of a chart repository") from None
    rows = _inner(_inner(data, "entries"), chart)
    entries = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    plain_version = version.removeprefix("v")
    row = next((row for row in entries if str(row.get("version")).removeprefix("v") == plain_version), None)
    if row is None:
        newest = ", ".join(str(row.get("version")) for row in entries[:5])
        has = f"it begins with {newest}" if newest else "it has no chart of this name"
        raise _unlisted(f"{index} has no {chart} {version}: {has}")
    urls = row.get("urls")
    if not isinstance(urls, list) or not urls or not isinstance(urls[0], str):
        raise _unlisted(f"{index} does not list {chart} {version}")
    url = urljoin(base, urls[0])
    digest = str(row.get("digest") or "").removeprefix("sha256:").lower()
    return url, digest if _HEX(digest) else digest_of(url, cancel)[0]


def chart_of_registry(address: str, version: str, cancel: Cancel, logins: Logins) -> str:
    """Return the SHA-256 of a chart's archive: that of its layer in the registry's manifest.

    Args:
        address: `oci://REGISTRY/PATH/CHART`.
        version: its tag; a `+` is `_` there, as Helm writes it.
        cancel: ends it early.
        logins: which logins of registries there are.

    Raises:
        Permanent: `DIGEST_NOT_LISTED`: the manifest is not one of a chart.
        Permanent, Transient: it cannot be read without a login, or not at all.
    """
    place = f"manifests/{version.replace('+', '_')}"
    body = _of_registry(address, place, MANIFEST, cancel, logins)
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    layers = _inner(data, "layers")
    for layer in layers if isinstance(layers, list) else []:
        digest = str(_inner(layer, "digest")).removeprefix("sha256:")
        if _inner(layer, "mediaType") == CHART_LAYER and _HEX(digest):
            return digest
    raise _unlisted(f"{address} {version} is not a Helm chart")


def stored_chart(url: str, sha256: str, logins: Logins) -> bytes:
    """Return a chart's archive of a registry, from the cache of this machine where it is there already.

    Args:
        url: `oci://REGISTRY/PATH/CHART:VERSION`, as it is pinned.
        sha256: what the archive must be, in hex.
        logins: which logins of registries there are.

    Raises:
        Permanent, Transient: it cannot be downloaded, or is another file.
    """
    address = url.rpartition(":")[0] if ":" in url.rpartition("/")[2] else url

    def fetch(keep: Callable[[bytes], object]) -> str:
        data = _of_registry(address, f"blobs/sha256:{sha256}", "*/*", Cancel(), logins)
        keep(data)
        return hashlib.sha256(data).hexdigest()

    return kept(url, sha256, fetch)


def _of_registry(address: str, place: str, accept: str, cancel: Cancel, logins: Logins) -> bytes:
    split = urlsplit(address)
    url = f"https://{split.netloc}/v2{split.path.rstrip('/')}"
    return Repository(url, cancel, logins).read(place, accept)


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _unlisted(summary: str) -> Permanent:
    return Permanent(Diagnostic("DIGEST_NOT_LISTED", summary, remedy="correct the version, or its source"))
