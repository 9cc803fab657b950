"""A Helm release, brought about by the Helm controller of k3s from a HelmChart object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Impossible, Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube import refusals
from provision.kube.actions import apply_request
from provision.kube.comparison import MANAGER, differences
from provision.kube.kinds import HELM_CHART, JOB, object_path
from provision.kube.names import SUBJECT, labels_of
from provision.kube.queries import Drift, DriftQuery, JobLog, Live, ObjectQuery
from provision.kube.readiness import State, readiness
from provision.kube.releases import HelmReleases, other_release
from provision.kube.resources.declared_release import DEPLOYED, INSTALL_SECONDS, DeclaredRelease
from provision.kube.resources.object import deletion, manifest_text
from provision.values.diagnostics import Diagnostic

HOME = "kube-system"
"""Namespace whose HelmCharts the controller of k3s serves."""


@dataclass(frozen=True, slots=True)
class HelmRelease(DeclaredRelease):
    """A release that a HelmChart of the same name brings about.

    Args:
        role: which role declares it.
    """

    role: str

    @property
    def manifest(self) -> dict[str, Any]:
        """The HelmChart."""
        is_oci = self.chart.repository.startswith("oci://")
        source: dict[str, Any] = {"chart": self.chart.repository if is_oci else self.chart.name}
        if self.chart.content:
            source = {"chartContent": self.chart.content}
        elif not is_oci:
            source["repo"] = self.chart.repository
        spec = {
            **source,
            "version": self.chart.version,
            "targetNamespace": self.namespace,
            "createNamespace": True,
            "valuesContent": self.values,
            # `reinstall`, the default, removes a failed release with all of its custom resources.
            "failurePolicy": "abort",
            "backOffLimit": 3,
            "timeout": f"{self.seconds:.0f}s",
        }
        metadata = {"name": self.name, "namespace": HOME, "labels": labels_of(self.role)}
        return {"apiVersion": HELM_CHART.api, "kind": HELM_CHART.name, "metadata": metadata, "spec": spec}

    @property
    def _drift(self) -> DriftQuery:
        text = manifest_text(self.manifest)
        return DriftQuery(HELM_CHART.api, HELM_CHART.plural, HOME, self.name, text)

    @property
    def _job(self) -> ObjectQuery:
        return ObjectQuery(JOB.api, JOB.plural, HOME, f"helm-install-{self.name}")

    @property
    def _log(self) -> JobLog:
        return JobLog(HOME, f"helm-install-{self.name}")

    def queries(self) -> tuple[Any, ...]:
        """Ask for the HelmChart, its Job with the log of a failure, and the releases that there are."""
        return (self._drift, self._job, self._log, HelmReleases())

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the HelmChart, then what became of it."""
        drift: Drift = snapshot[self._drift]
        stranger = self._other(snapshot)
        if stranger is not None:
            place = f"{stranger.namespace}/{stranger.name}"
            return (Change(Op.ATTENTION, "release", place, f"{self.namespace}/{self.name}"),)
        if drift.refusal is not None and not drift.refusal.not_yet:
            return (Change(Op.ATTENTION, "chart", drift.refusal.message, "accepted"),)
        if drift.live is not None and drift.applied is not None:
            return tuple(_updates(drift.live.body, drift.applied.body))
        return self.creation() if drift.live is None else self._outcome(snapshot, drift.live)

    def _outcome(self, snapshot: Snapshot, live: Live) -> tuple[Change, ...]:
        """Return what is missing until the release is deployed."""
        failure = self._failure(snapshot, live)
        if failure:
            return (Change(Op.ATTENTION, "installation", failure, DEPLOYED),)
        release = self._own(snapshot)
        if release is not None and (release.version, release.status) == (self.chart.version, DEPLOYED):
            return ()
        state = f"{release.version} {release.status}" if release is not None else "not installed yet"
        desired = f"{self.chart.version} {DEPLOYED}"
        return (Change(Op.ATTENTION, "installation", state, desired, Settles.WITHIN, self.seconds),)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Apply the HelmChart; what the controller then does is polled."""
        drift: Drift = snapshot[self._drift]
        stranger = self._other(snapshot)
        if stranger is not None:
            return Impossible(other_release(stranger, self.name))
        if drift.refusal is not None and not drift.refusal.not_yet:
            return self._as_refused(refusals.diagnostic_of(drift.refusal, f"HelmChart {self.name}", SUBJECT))
        if drift.live is not None and drift.applied is None:
            failure = self._failure(snapshot, drift.live)
            lines: tuple[str, ...] = snapshot[self._log]
            job = self._job.name
            return self._refused(
                "HELM_FAILED" if failure else "HELM_NOT_DEPLOYED",
                f"release {self.name} is not deployed: {failure or 'its Job has not ended'}",
                subject=SUBJECT,
                evidence=lines,
                untouched="The HelmChart stays; the release is not removed (failurePolicy: abort).",
                remedy=f"See `kubectl -n {HOME} logs job/{job}`, correct the cause, remove the Job"
                f" (`kubectl -n {HOME} delete job {job}`), and run the command again.",
            )
        request = apply_request(HELM_CHART.api, HELM_CHART.plural, self.manifest)
        return ApiCall((request,), risks=self.risks)

    def _as_refused(self, problem: Diagnostic) -> Remedy:
        return self._refused(
            problem.code,
            problem.summary,
            subject=SUBJECT,
            evidence=problem.evidence,
            untouched=problem.untouched,
            remedy=problem.remedy,
        )

    # ------------------------------------------------------------ what there is

    def _failure(self, snapshot: Snapshot, live: Live) -> str:
        """Return why the Job of the present HelmChart has failed; empty while it may still succeed."""
        job: Live | None = snapshot[self._job]
        if job is None or str(job.metadata.get("creationTimestamp")) < _applied_at(live):
            return ""  # of a former state: the controller has not made its Job yet
        verdict = readiness(job.body)
        return verdict.reason if verdict.state is State.BROKEN else ""


@dataclass(frozen=True, slots=True)
class HelmAbsent(KeyedResource):
    """A release of ours that is not there: its HelmChart goes, and with it what the chart brought.

    Args:
        name: of the release.
        seconds: how long its removal may take.
        risks: consents that its removal needs.
    """

    kind: ClassVar[str] = "helm-release"

    name: str
    seconds: float = INSTALL_SECONDS
    risks: tuple[Effect, ...] = ()

    def _key_name(self) -> str:
        return self.name

    @property
    def _query(self) -> ObjectQuery:
        return ObjectQuery(HELM_CHART.api, HELM_CHART.plural, HOME, self.name)

    def queries(self) -> tuple[ObjectQuery, ...]:
        """Ask for the HelmChart."""
        return (self._query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """A HelmChart that is being deleted is still there."""
        live: Live | None = snapshot[self._query]
        return () if live is None else (Change(Op.DELETE, "release", "present", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Delete it, and wait until the controller has uninstalled the release."""
        del snapshot
        path = object_path(HELM_CHART.api, HELM_CHART.plural, HOME, self.name)
        return ApiCall((deletion(path, self.seconds),), risks=self.risks)


def _applied_at(live: Live) -> str:
    """Return when we applied an object, as the API spells times; empty where that is not known."""
    entries = live.metadata.get("managedFields")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and (entry.get("manager"), entry.get("operation")) == (
            MANAGER,
            "Apply",
        ):
            return str(entry.get("time") or "")
    return ""


def _updates(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return how two HelmCharts differ, values by path."""
    changes: list[Change] = []
    for path, old, new in differences(before, after):
        if path == "spec.valuesContent":
            changes += [
                Change(Op.UPDATE, f"values.{place}", was, now)
                for place, was, now in differences(_values(old), _values(new))
            ]
        else:
            changes.append(Change(Op.UPDATE, path.removeprefix("spec."), old, new))
    return changes or [Change(Op.UPDATE, "values", "other text", "same values")]


def _values(text: object) -> Mapping[str, Any]:
    try:
        data = json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, Mapping) else {}
