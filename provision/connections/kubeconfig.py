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


def merged(text: str, endpoint: KubeEndpoint, name: str, where: str) -> str:
    """Return a kubeconfig with an API in it as its current context; entries of other names stay.

    Args:
        text: the kubeconfig so far, or empty.
        endpoint: the API with its credentials.
        name: of its cluster, user and context.
        where: the file, for diagnostics.

    Raises:
        Permanent: the text is no kubeconfig.
    """
    try:
        data = yaml.safe_load(text) if text.strip() else {}
    except yaml.YAMLError:
        raise _invalid(where, "it is not YAML") from None
    if not isinstance(data, dict):
        raise _invalid(where, "it is not a mapping")
    cluster: dict[str, object] = {
        "server": endpoint.url,
        "certificate-authority-data": _packed(endpoint.authority),
    }
    cluster |= {"tls-server-name": endpoint.server_name} if endpoint.server_name else {}
    user: dict[str, object] = {}
    if endpoint.certificate and endpoint.key is not None:
        user["client-certificate-data"] = _packed(endpoint.certificate)
        user["client-key-data"] = _packed(endpoint.key.get_secret_value())
    if endpoint.token is not None:
        user["token"] = endpoint.token.get_secret_value()
    parts = {
        "clusters": ("cluster", cluster),
        "users": ("user", user),
        "contexts": ("context", {"cluster": name, "user": name}),
    }
    result: dict[str, object] = {"apiVersion": "v1", "kind": "Config", **data, "current-context": name}
    for section, (inner, value) in parts.items():
        held = data.get(section)
        others = [
            entry
            for entry in (held if isinstance(held, list) else [])
            if not (isinstance(entry, Mapping) and entry.get("name") == name)
        ]
        result[section] = [*others, {"name": name, inner: value}]
    return yaml.safe_dump(result, sort_keys=False)


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
