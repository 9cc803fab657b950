"""Runs helm for a release, and finds the log of the Job on which it failed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from provision.connections.contracts import KubeConnection
from provision.connections.helm import Helm, HelmTask
from provision.contracts.driver import Emit
from provision.kube.kinds import JOB, POD, collection_path, object_path
from provision.kube.readiness import State, readiness
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, Transient

LOG_LINES = 20
LONGEST = 300
"""Characters of an error in a summary."""


def run_helm(
    helm: Helm | None, connection: KubeConnection, task: HelmTask, emit: Emit, cancel: Cancel, subject: str
) -> Diagnostic | None:
    """Run helm; return what is wrong, or None.

    Raises:
        Permanent: the program cannot run here.
        Interrupted: the run must leave.
    """
    if helm is None:
        raise Permanent(Diagnostic("HELM_UNFIT", "helm cannot reach this API", subject))
    status, lines = helm.run(task, emit, cancel)
    if status == 0:
        return None
    if cancel.leaving:
        raise Interrupted
    reason = _reason(lines) or f"status {status}"
    return Diagnostic(
        "HELM_FAILED",
        f"helm {task.verb} of release {task.name} failed: {reason}",
        subject,
        evidence=(*lines, *_failed_job(connection, task.namespace)),
        untouched="What helm has made stays: neither the release nor its objects are removed.",
        remedy=f"See `kubectl -n {task.namespace} get events,pods`, correct the cause,"
        " and run the command again.",
    )


def _reason(lines: tuple[str, ...]) -> str:
    """Return the last error, which Helm 3 writes as a list of several lines."""
    first = next(
        (place for place in range(len(lines) - 1, -1, -1) if lines[place].startswith("Error:")), None
    )
    if first is None:
        return ""
    return " ".join(" ".join(lines[first:]).removeprefix("Error: ").split())[:LONGEST]


def _failed_job(connection: KubeConnection, namespace: str) -> tuple[str, ...]:
    """Return the log of the newest Job that has failed: a hook of the chart, which helm only names."""
    jobs = _objects(connection, collection_path(JOB.api, JOB.plural, namespace), {})
    broken = [job for job in jobs if readiness({**job, "kind": JOB.name}).state is State.BROKEN]
    if not broken:
        return ()
    name = _metadata(max(broken, key=_created), "name")
    pods = _objects(
        connection, collection_path(POD.api, POD.plural, namespace), {"labelSelector": f"job-name={name}"}
    )
    if not pods:
        return (f"job {name} has failed; its pod is gone",)
    path = object_path(POD.api, POD.plural, namespace, _metadata(max(pods, key=_created), "name"))
    log = _asked(connection, f"{path}/log?{urlencode({'tailLines': LOG_LINES})}")
    lines = str(log).splitlines()[-LOG_LINES:] if isinstance(log, str) else []
    return (f"log of job {name}:", *lines)


def _objects(connection: KubeConnection, path: str, options: Mapping[str, str]) -> list[Mapping[str, object]]:
    body = _asked(connection, f"{path}?{urlencode(options)}" if options else path)
    items = body.get("items") if isinstance(body, Mapping) else None
    return [item for item in (items if isinstance(items, list) else []) if isinstance(item, Mapping)]


def _asked(connection: KubeConnection, path: str) -> object:
    """Return what a path answers; None where it gives no answer: this only explains a failure."""
    try:
        reply = connection.request("GET", path)
    except (Transient, Permanent):
        return None
    return reply.body if reply.is_success else None


def _metadata(body: Mapping[str, object], key: str) -> str:
    metadata = body.get("metadata")
    return str(metadata.get(key) or "") if isinstance(metadata, Mapping) else ""


def _created(body: Mapping[str, object]) -> str:
    return _metadata(body, "creationTimestamp")
