"""What both back ends of Helm share: a release as the inventory declares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect
from provision.contracts.resource import AnswerId, KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.charts import Chart
from provision.kube.releases import HelmReleases, Release, find_other, find_release

INSTALL_SECONDS = 900.0
DEPLOYED = "deployed"


@dataclass(frozen=True, slots=True)
class DeclaredRelease(KeyedResource):
    """A release of a chart that is deployed in its version with its values.

    No secret belongs in its values: they are a part of questions, which the controller remembers.

    Args:
        name: of the release.
        chart: the chart.
        namespace: in which it is installed.
        values: JSON text.
        seconds: how long the installation may take.
        risks: consents that a change needs.
        affected: answers that a change alters for others.
    """

    kind: ClassVar[str] = "helm-release"

    name: str
    chart: Chart
    namespace: str
    values: str
    seconds: float = field(default=INSTALL_SECONDS, kw_only=True)
    risks: tuple[Effect, ...] = field(default=(), kw_only=True)
    affected: tuple[AnswerId, ...] = field(default=(), kw_only=True)

    def _key_name(self) -> str:
        return self.name

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what others may read of what the chart brings."""
        return frozenset(self.affected) if changes else frozenset()

    def creation(self) -> tuple[Change, ...]:
        """Return the change that makes it."""
        return (Change(Op.CREATE, "release", None, f"{self.chart.name} {self.chart.version}"),)

    def _own(self, snapshot: Snapshot) -> Release | None:
        """Return the newest revision of this release."""
        return find_release(snapshot[HelmReleases()], self.namespace, self.name)

    def _other(self, snapshot: Snapshot) -> Release | None:
        """Return a release of the same chart that is not this one."""
        return find_other(snapshot[HelmReleases()], self.chart.name, self.namespace, self.name)
