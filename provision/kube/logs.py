"""The beginnings of logs of pods that do not do their work: read only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlencode

from provision.connections.contracts import KubeReply
from provision.kube.facts import node_fact
from provision.kube.kinds import POD, object_path
from provision.kube.queries import Listing
from provision.kube.readiness import State, readiness

_BYTES = 32768
_MOST_PODS = 8
"""One cause is seldom another one on the ninth node."""


@dataclass(frozen=True, slots=True)
class PluginLogs:
    """Logs of the pods of a device plugin that are not ready, or whose node offers nothing of a resource.

    The beginning of each: what a plugin has seen when it started. Answer: tuple of PodLog, empty while all
    is well.

    Args:
        namespace: of the pods.
        labels: selector of the pods.
        resources: what the plugin offers.
    """

    kind: ClassVar[str] = "kube-plugin-logs"
    namespace: str
    labels: str
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodLog:
    """The beginning of a pod's log.

    Args:
        node: name of its Node.
        pod: its name.
        is_ready: whether the pod is ready.
        reason: why it is not.
        lines: of the log; empty where it cannot be read.
    """

    node: str
    pod: str
    is_ready: bool
    reason: str = ""
    lines: tuple[str, ...] = ()


def logs_of(
    query: PluginLogs, pods: Listing, nodes: Listing, read: Callable[[str], KubeReply]
) -> tuple[PodLog, ...]:
    """Return the logs of the pods that do not do their work."""
    facts = {live.name: node_fact(live) for live in nodes.objects}
    rows: list[PodLog] = []
    for pod in pods.objects:
        verdict = readiness(pod.body)
        is_ready = verdict.state is State.READY
        name = str(pod.at("spec", "nodeName") or "")
        fact = facts.get(name)
        offered = fact.allocatable if fact is not None else {}
        lacks = any(offered.get(resource, "0") == "0" for resource in query.resources)
        if (is_ready and not lacks) or len(rows) == _MOST_PODS:
            continue
        path = object_path(POD.api, POD.plural, query.namespace, pod.name)
        reply = read(f"{path}/log?{urlencode({'limitBytes': _BYTES})}")
        lines = tuple(str(reply.body).splitlines()) if reply.is_success else ()
        rows.append(PodLog(name, pod.name, is_ready, verdict.reason, lines))
    return tuple(rows)
