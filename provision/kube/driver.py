"""Asks a Kubernetes API and acts on it: one LIST for each kind and namespace, server-side apply."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from provision.connections.contracts import KubeConnection
from provision.connections.helm import Helm
from provision.contracts.driver import Action, Emit, Hold, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.contracts.remedy import ApiCall
from provision.contracts.snapshot import Snapshot
from provision.kube import refusals
from provision.kube.actions import Actor, is_write
from provision.kube.comparison import MANAGER, is_applied, without_servers
from provision.kube.facts import NODES
from provision.kube.kinds import JOB, POD, SECRET, collection_path, object_path
from provision.kube.lease import hold_lease
from provision.kube.logs import PluginLogs, logs_of
from provision.kube.queries import (
    Drift,
    DriftQuery,
    JobLog,
    Listing,
    ListQuery,
    Live,
    ObjectQuery,
    ServerVersion,
)
from provision.kube.readiness import State, readiness
from provision.kube.releases import LABELS, HelmReleases, ReleaseValues, releases_of, value_differences
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, UnknownOutcome

PAGE = 500
SMALL_PAGE = 20
"""Secrets may have 1 MiB each."""
BULKY = frozenset({"pods", "secrets", "events"})
"""Collections that may be large: single objects are asked one by one."""
_APPLY = "application/apply-patch+yaml"
_Collection = tuple[str, str, str]
"""API, plural and namespace."""


class KubeDriver:
    """One Kubernetes API; a Driver, and the Keeper of its own lock.

    Args:
        system: `cluster/api`.
        connection: an open KubeConnection.
        connect: makes a further connection, for the thread that renews the lock.
        who: user and machine on whose behalf it acts.
        helm: runs helm against this API.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        system: str,
        connection: KubeConnection,
        connect: Callable[[], KubeConnection] | None = None,
        who: str = "",
        helm: Helm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.system = system
        self._connection = connection
        self._connect = connect or (lambda: connection)
        self._who = who
        self._helm = helm
        self._clock = clock

    @property
    def round_trips(self) -> int:
        """Requests so far."""
        return self._connection.requests

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:  # noqa: ARG002 - the protocol's form
        """Refuse: an API has no boot."""
        raise Permanent(Diagnostic("NO_BOOT", f"{self.system} is an API and cannot be rebooted"))

    def hold(self, run: str, what: str, cancel: Cancel) -> Hold:
        """Take the cluster's lock, a Lease that a thread renews."""
        return hold_lease(self._connect(), run, self._who, what, cancel)

    # ------------------------------------------------------------ asking

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything: one LIST for each kind and namespace, one dry run for each object that differs.

        Raises:
            Transient, Permanent, Refused: the API gives no answers at all.
        """
        answers: dict[Any, object] = {}
        lists = {query: self._listing(query, cancel) for query in queries if isinstance(query, ListQuery)}
        answers |= lists
        logs = [query for query in queries if isinstance(query, JobLog)]
        jobs = [ObjectQuery(JOB.api, JOB.plural, log.namespace, log.name) for log in logs]
        single = [query for query in queries if isinstance(query, ObjectQuery | DriftQuery)]
        objects = self._objects([*single, *jobs], lists, cancel)
        for query in single:
            live = objects[_place(query)]
            answers[query] = live if isinstance(query, ObjectQuery) else self._drift(query, live)
        for log, job in zip(logs, jobs, strict=True):
            answers[log] = self._job_log(log, objects[_place(job)])
        secrets: Listing | Unknown | None = None  # one LIST for all questions about releases
        for query in queries:
            if isinstance(query, HelmReleases | ReleaseValues):
                secrets = secrets or self._helm_secrets(cancel)
                answers[query] = _of_secrets(query, secrets)
            elif isinstance(query, ServerVersion):
                answers[query] = self._version()
            elif isinstance(query, PluginLogs):
                answers[query] = self._plugin_logs(query, lists, cancel)
            elif isinstance(query, ApiGet):
                answers[query] = self._plain(query)
        return Snapshot(self.system, answers=answers)

    def _listing(self, query: ListQuery, cancel: Cancel, fields: str = "") -> Listing | Unknown:
        path = collection_path(query.api, query.plural, query.namespace)
        parameters: dict[str, object] = {"limit": SMALL_PAGE if query.plural == "secrets" else PAGE}
        parameters |= {"labelSelector": query.labels} if query.labels else {}
        fields = fields or query.fields
        parameters |= {"fieldSelector": fields} if fields else {}
        objects: list[Live] = []
        while True:
            if cancel.leaving:
                raise Interrupted
            reply = self._connection.request("GET", f"{path}?{urlencode(parameters)}")
            if refusals.is_kind_missing(reply):
                return Listing(is_served=False)
            body = reply.body
            items = body.get("items") if isinstance(body, Mapping) else None
            if not reply.is_success or not isinstance(body, Mapping) or not isinstance(items, list):
                return Unknown(f"{path}: {refusals.message_of(reply)}")
            name = str(body.get("kind") or "").removesuffix("List")
            head = {"apiVersion": body.get("apiVersion"), "kind": name}
            objects += [Live.of({**head, **item}) for item in items if isinstance(item, Mapping)]
            metadata = body.get("metadata")
            rest = metadata.get("continue") if isinstance(metadata, Mapping) else None
            if not rest:
                return Listing(tuple(objects))
            parameters["continue"] = rest

    def _objects(
        self,
        queries: Iterable[ObjectQuery | DriftQuery],
        lists: Mapping[ListQuery, Listing | Unknown],
        cancel: Cancel,
    ) -> dict[tuple[_Collection, str], Live | Unknown | None]:
        """Return single objects by their place, from lists that were asked anyway or for them."""
        names: dict[_Collection, set[str]] = {}
        for query in queries:
            collection, name = _place(query)
            names.setdefault(collection, set()).add(name)
        objects: dict[tuple[_Collection, str], Live | Unknown | None] = {}
        for collection, declared in sorted(names.items()):
            whole = ListQuery(*collection)
            listed: dict[str, Listing | Unknown]
            if whole in lists:
                listed = dict.fromkeys(declared, lists[whole])
            elif len(declared) == 1 or collection[1] in BULKY:
                listed = {
                    name: self._listing(whole, cancel, f"metadata.name={name}") for name in sorted(declared)
                }
            else:
                listed = dict.fromkeys(declared, self._listing(whole, cancel))
            for name, listing in listed.items():
                live = listing if isinstance(listing, Unknown) else listing.named(name)
                objects[collection, name] = live
        return objects

    def _drift(self, query: DriftQuery, live: Live | Unknown | None) -> Drift | Unknown:
        if isinstance(live, Unknown):
            return live
        manifest = json.loads(query.manifest)
        if live is not None and is_applied(live.body, manifest):
            return Drift(live)
        path = object_path(query.api, query.plural, query.namespace, query.name)
        force = "true" if query.force else "false"
        options = urlencode({"fieldManager": MANAGER, "force": force, "dryRun": "All"})
        reply = self._connection.request("PATCH", f"{path}?{options}", manifest, content_type=_APPLY)
        if not reply.is_success or not isinstance(reply.body, Mapping):
            return Drift(live, refusal=refusals.refusal_of(reply))
        applied = Live.of(reply.body)
        is_same = live is not None and without_servers(live.body) == without_servers(applied.body)
        return Drift(live, None if is_same else applied)

    def _job_log(self, query: JobLog, job: Live | Unknown | None) -> object:
        if isinstance(job, Unknown):
            return job
        if job is None or readiness(job.body).state is not State.BROKEN:
            return ()
        pods = self._listing(
            ListQuery(POD.api, POD.plural, query.namespace, f"job-name={query.name}"), Cancel()
        )
        if isinstance(pods, Unknown) or not pods.objects:
            return ()
        newest = max(pods.objects, key=lambda pod: str(pod.metadata.get("creationTimestamp")))
        path = object_path(POD.api, POD.plural, query.namespace, newest.name)
        reply = self._connection.request("GET", f"{path}/log?{urlencode({'tailLines': query.lines})}")
        return tuple(str(reply.body).splitlines()[-query.lines :]) if reply.is_success else ()

    def _plugin_logs(
        self, query: PluginLogs, lists: Mapping[ListQuery, Listing | Unknown], cancel: Cancel
    ) -> object:
        pods_query = ListQuery(POD.api, POD.plural, query.namespace, query.labels)
        pods = lists[pods_query] if pods_query in lists else self._listing(pods_query, cancel)
        nodes = lists[NODES] if NODES in lists else self._listing(NODES, cancel)
        if isinstance(pods, Unknown):
            return pods
        if isinstance(nodes, Unknown):
            return nodes
        return logs_of(query, pods, nodes, lambda path: self._connection.request("GET", path))

    def _helm_secrets(self, cancel: Cancel) -> Listing | Unknown:
        return self._listing(ListQuery(SECRET.api, SECRET.plural, "", LABELS), cancel)

    def _version(self) -> str | Unknown:
        reply = self._connection.request("GET", "/version")
        version = reply.body.get("gitVersion") if isinstance(reply.body, Mapping) else None
        return version if isinstance(version, str) else Unknown(f"/version: {refusals.message_of(reply)}")

    def _plain(self, query: ApiGet) -> ApiReply:
        """Ask for a check, which reads the answer with its own code."""
        return self.send("GET", query.path)

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send a request of a check; see Sender."""
        reply = self._connection.request(method, path, body)
        is_json = not isinstance(reply.body, str)
        text = json.dumps(reply.body, separators=(",", ":")) if is_json else str(reply.body)
        return ApiReply(reply.status, text if reply.is_success else refusals.message_of(reply))

    # ------------------------------------------------------------ acting

    def act(
        self,
        run: str,  # noqa: ARG002 - the protocol's form; managedFields name us
        actions: Sequence[Action],
        effects: Sequence[Effect],
        emit: Emit,
        cancel: Cancel,
    ) -> list[Result]:
        """Send the requests in order and wait for what they bring about; see Driver."""
        results: list[Result] = []
        actor = Actor(self._connection, self.system.partition("/")[0], emit, cancel, self._clock, self._helm)
        for action in actions:
            if cancel.draining or any(result.verdict is not Verdict.DONE for result in results):
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            if not isinstance(action.remedy, ApiCall):
                raise TypeError(f"{action.label}: an API takes no script")
            began = self._clock()
            result = self._done(actor, action.label, action.remedy)
            results.append(replace(result, seconds=self._clock() - began))
        for effect in effects:
            diagnostic = Diagnostic("EFFECT_UNKNOWN", f"{self.system} cannot perform {effect}")
            results.append(Result(Verdict.FAILED, diagnostic=diagnostic))
        return results

    @staticmethod
    def _done(actor: Actor, label: str, remedy: ApiCall) -> Result:
        try:
            for index, request in enumerate(remedy.requests):
                problem = actor.perform(request, label)
                if problem is not None and any(map(is_write, remedy.requests[:index])):
                    problem = refusals.after_others(problem)
                if problem is not None:
                    return Result(Verdict.FAILED, diagnostic=problem, output=problem.evidence)
        except UnknownOutcome as error:
            return Result(Verdict.INDETERMINATE, diagnostic=error.diagnostics[0], handle=error.handle)
        except ProvisionError as error:
            return Result(Verdict.FAILED, diagnostic=error.diagnostics[0])
        return Result(Verdict.DONE)


def _of_secrets(query: HelmReleases | ReleaseValues, secrets: Listing | Unknown) -> object:
    if isinstance(secrets, Unknown):
        return secrets
    if isinstance(query, HelmReleases):
        return releases_of(secrets.objects)
    return value_differences(secrets.objects, query)


def _place(query: ObjectQuery | DriftQuery) -> tuple[_Collection, str]:
    return (query.api, query.plural, query.namespace), query.name
