"""What the API refuses beyond schemas, and the defaults that it fills in, as far as our objects need them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provision.lab.kube import errors
from provision.lab.kube.errors import Cause, StatusError
from provision.lab.kube.kinds import Kind

if TYPE_CHECKING:
    from provision.lab.kube.store import Store

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*").fullmatch
_NAME_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_WORKLOADS = frozenset({"DaemonSet", "Deployment", "StatefulSet"})


def check(store: Store, kind: Kind, made: Mapping[str, Any], live: Mapping[str, Any] | None) -> None:
    """Refuse an object that the API would refuse.

    Raises:
        StatusError: it is refused.
    """
    metadata = made["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    if live is None and kind.namespaced:
        _check_namespace(store, kind, name, namespace)
    if kind.schema is None and not _NAME(name) and kind.group != "rbac.authorization.k8s.io":
        text = f'Invalid value: "{name}": {_NAME_TEXT}'
        raise errors.invalid(kind, name, [("FieldValueInvalid", text, "metadata.name")])
    if kind.name == "Pod":
        _check_pod(store, kind, made)
    if live is not None and kind.name in _WORKLOADS and kind.group == "apps":
        selector, former = made["spec"].get("selector"), live["spec"].get("selector")
        if selector != former:
            import json  # noqa: PLC0415 - for this message alone

            text = f"Invalid value: {json.dumps(selector, separators=(',', ':'))}: field is immutable"
            raise errors.invalid(kind, name, [("FieldValueInvalid", text, "spec.selector")])


def _check_namespace(store: Store, kind: Kind, name: str, namespace: str) -> None:
    held = store.get(store.kind("Namespace"), ("", namespace))
    if held is None:
        raise errors.not_found(store.kind("Namespace"), namespace)
    if "deletionTimestamp" in held["metadata"]:
        reason = f"namespace {namespace} is being terminated"
        details = errors.about(kind, name, [("NamespaceTerminating", reason, "metadata.namespace")])
        text = (
            f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace {namespace}'
            " because it is being terminated"
        )
        raise StatusError(403, "Forbidden", text, details)


def _check_pod(store: Store, kind: Kind, made: Mapping[str, Any]) -> None:
    name = made["metadata"]["name"]
    runtime = made["spec"].get("runtimeClassName")
    if runtime and store.get(store.kind("RuntimeClass"), ("", runtime)) is None:
        text = f'pods "{name}" is forbidden: pod rejected: RuntimeClass "{runtime}" not found'
        raise StatusError(403, "Forbidden", text, errors.about(kind, name))
    causes = list(_fractions(made))
    if causes:
        raise errors.invalid(kind, name, causes)


def _fractions(made: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield extended resources that are no whole numbers; a limit is a request where none is given."""
    for index, container in enumerate(made["spec"].get("containers", ())):
        resources = container.get("resources", {})
        for section in ("limits", "requests"):
            for name, amount in (resources.get(section) or resources.get("limits", {})).items():
                if "/" in name and not str(amount).isdigit():
                    shown = f"{round(float(amount) * 1000)}m"
                    field = f"spec.containers[{index}].resources.{section}[{name}]"
                    yield "FieldValueInvalid", f'Invalid value: "{shown}": must be an integer', field


def completed(kind: Kind, made: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the defaults of Kubernetes' own kinds that our code looks at."""
    if kind.name == "Namespace":
        labels = {
            **made["metadata"].get("labels", {}),
            "kubernetes.io/metadata.name": made["metadata"]["name"],
        }
        made["metadata"] = {**made["metadata"], "labels": dict(sorted(labels.items()))}
        made.setdefault("spec", {"finalizers": ["kubernetes"]})
        made.setdefault("status", {"phase": "Active"})
    elif kind.name == "Pod":
        made.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})
        for container in made["spec"].get("containers", ()):
            limits = container.get("resources", {}).get("limits")
            if limits:
                container["resources"]["limits"] = {key: str(value) for key, value in limits.items()}
                container["resources"].setdefault("requests", dict(container["resources"]["limits"]))
    elif kind.name == "DaemonSet":
        empty = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        made.setdefault("status", dict.fromkeys(empty, 0))
    elif kind.name == "Secret" and "stringData" in made:
        import base64  # noqa: PLC0415 - for this kind alone

        data = {
            key: base64.b64encode(str(text).encode()).decode() for key, text in made.pop("stringData").items()
        }
        made["data"] = {**made.get("data", {}), **data}
    return made
