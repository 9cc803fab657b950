"""A Helm release, brought about by the program helm on the machine of provision."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.connections.helm import HelmTask
from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Blob, Impossible, Remedy, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import HELM
from provision.kube.kinds import HELM_CHART
from provision.kube.names import SUBJECT
from provision.kube.queries import Live, ObjectQuery
from provision.kube.releases import (
    HelmReleases,
    ReleaseValues,
    find_release,
    other_release,
)
from provision.kube.resources.declared_release import DEPLOYED, INSTALL_SECONDS, DeclaredRelease
from provision.kube.resources.release import HOME
from provision.values.diagnostics import Diagnostic

PENDING = "pending-"
"""How the states begin in which helm refuses to work: another helm works, or was killed."""


@dataclass(frozen=True, slots=True)
class CliRelease(DeclaredRelease):
    """A release that `helm upgrade --install` brings about; `seconds` bounds each of its waits.

    Args:
        program: the program, or the archive of its release.
    """

    program: Blob

    @property
    def _controlled(self) -> ObjectQuery:
        return ObjectQuery(HELM_CHART.api, HELM_CHART.plural, HOME, self.name)

    @property
    def _differences(self) -> ReleaseValues:
        return ReleaseValues(self.namespace, self.name, self.values)

    def queries(self) -> tuple[Any, ...]:
        """Ask for the releases, how the values differ, and for a HelmChart of the same name."""
        return (HelmReleases(), self._differences, self._controlled)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the newest revision with what is declared."""
        problem = self._problem(snapshot)
        own = self._own(snapshot)
        if problem is not None:
            state = f"{own.version} {own.status}" if own is not None else "not installed"
            return (Change(Op.ATTENTION, "release", state, f"{self.chart.version} {DEPLOYED}"),)
        if own is None:
            return self.creation()
        changes: list[Change] = []
        if own.version != self.chart.version:
            changes.append(Change(Op.UPDATE, "version", own.version, self.chart.version))
        if own.status != DEPLOYED:
            changes.append(Change(Op.UPDATE, "status", own.status, DEPLOYED))
        differences: tuple[tuple[str, Any, Any], ...] = snapshot[self._differences]
        changes += [Change(Op.UPDATE, f"values.{path}", old, new) for path, old, new in differences]
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Run `helm upgrade --install`."""
        problem = self._problem(snapshot)
        if problem is not None:
            return Impossible(problem)
        archive = self.chart.archive
        if archive is None:
            raise ValueError(f"{self.name}: the archive of the chart is missing")
        task = HelmTask(
            "upgrade",
            self.name,
            self.namespace,
            self.seconds,
            self.program.content,
            archive.content,
            json.loads(self.values),
        )
        return ApiCall((helm_request(task),), risks=self.risks)

    def _problem(self, snapshot: Snapshot) -> Diagnostic | None:
        """Return why helm cannot work on it."""
        other = self._other(snapshot)
        if other is not None:
            return other_release(other, self.name)
        controlled: Live | None = snapshot[self._controlled]
        if controlled is not None:
            return Diagnostic(
                "HELM_BACKEND_MIXED",
                f"release {self.name} belongs to HelmChart {HOME}/{self.name}: two programs would change it",
                SUBJECT,
                untouched="The release was left as it is.",
                remedy="set `cluster.helm.backend: controller`",
            )
        own = self._own(snapshot)
        if own is not None and own.status.startswith(PENDING):
            where = f"{self.name} -n {self.namespace}"
            is_first = own.status == "pending-install" or own.revision <= 1
            command = f"helm uninstall {where}" if is_first else f"helm rollback {where}"
            return Diagnostic(
                "HELM_PENDING",
                f"release {self.name} is {own.status} (revision {own.revision}): another helm works on it, or"
                " was killed",
                SUBJECT,
                untouched="The release was left as it is.",
                remedy=f"wait for the other helm; if none runs: `{command}`, then run the command again",
            )
        return None


@dataclass(frozen=True, slots=True)
class CliAbsent(KeyedResource):
    """A release of ours that is not there.

    Args:
        name: of the release.
        namespace: in which it was installed.
        program: the program, or the archive of its release.
        seconds: how long its removal may take.
        risks: consents that its removal needs.
    """

    kind: ClassVar[str] = "helm-release"

    name: str
    namespace: str
    program: Blob
    seconds: float = INSTALL_SECONDS
    risks: tuple[Effect, ...] = ()

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[HelmReleases]:
        """Ask for the releases that there are."""
        return (HelmReleases(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """A release in any state is there."""
        own = find_release(snapshot[HelmReleases()], self.namespace, self.name)
        return () if own is None else (Change(Op.DELETE, "release", "present", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Run `helm uninstall`, which waits until its objects are gone."""
        del snapshot
        task = HelmTask("uninstall", self.name, self.namespace, self.seconds, self.program.content)
        return ApiCall((helm_request(task),), risks=self.risks)


def helm_request(task: HelmTask) -> Request:
    """Return the request that runs helm."""
    return Request(HELM, f"{task.namespace}/{task.name}", {"task": task}, task=task.seconds)
