"""Reads a kubeconfig: which API, which authority, which credentials."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import SecretStr

from provision.connections.contracts import KubeEndpoint
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent


def endpoint_of(text: str, *, where: str, context: str = "", server: str = "") -> KubeEndpoint:
    """Return the API that a kubeconfig names.

    Args:
        text: YAML.
        where: the file, or whose it is, for diagnostics.
        context: which context; the current one if empty.
        server: address to use instead of the one in the file, which is loopback on a server of k3s.

    Raises:
        Permanent: it is no kubeconfig, or names credentials that a file cannot hold.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        raise _invalid(where, "it is not YAML") from None
    root = data if isinstance(data, Mapping) else {}
    chosen = context or str(root.get("current-context") or "")
    names = _named(root, "contexts", chosen, "context", where)
    cluster = _named(root, "clusters", str(names.get("cluster", "")), "cluster", where)
    user = _named(root, "users", str(names.get("user", "")), "user", where)
    if cluster.get("insecure-skip-tls-verify"):
        raise _invalid(where, "insecure-skip-tls-verify is not accepted: name the certificate authority")
    if user.get("exec") or user.get("auth-provider"):
        raise _invalid(where, "its user logs in by a program; use a certificate or a token")
    folder = Path(where).expanduser().parent
    authority = _content(cluster, "certificate-authority", folder, where)
    if not authority:
        raise _invalid(where, "it has no certificate-authority-data")
    token = str(user.get("token") or "") or _content(user, "tokenFile", folder, where).strip()
    key = _content(user, "client-key", folder, where)
    return KubeEndpoint(
        url=(server or str(cluster.get("server") or "")).rstrip("/"),
        authority=authority,
        certificate=_content(user, "client-certificate", folder, where),
        key=SecretStr(key) if key else None,
        token=SecretStr(token) if token else None,
        server_name=str(cluster.get("tls-server-name") or ""),
    )


def _named(
    root: Mapping[str, object], section: str, name: str, inner: str, where: str
) -> Mapping[str, object]:
    entries = root.get(section)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == name:
            value = entry.get(inner)
            return value if isinstance(value, Mapping) else {}
    raise _invalid(where, f"it has no {inner} {name!r}" if name else f"it has no current {inner}")


def _content(entry: Mapping[str, object], key: str, folder: Path, where: str) -> str:
    """Return what `KEY-data` holds, or the file that `KEY` names; empty where neither is there."""
    data, file = entry.get(f"{key}-data"), entry.get(key)
    if isinstance(data, str) and data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _invalid(where, f"{key}-data is not base64") from None
    if not isinstance(file, str) or not file:
        return ""
    path = folder / file
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        raise _invalid(where, f"{path} cannot be read") from None


def _invalid(where: str, what: str) -> Permanent:
    return Permanent(
        Diagnostic(
            "KUBECONFIG_INVALID",
            f"{where} is not a usable kubeconfig: {what}",
            remedy="Name another file in cluster.kubeconfig, or write this one again.",
        )
    )
