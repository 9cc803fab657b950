"""What somebody else has put where a removal would take it along: nothing is removed then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import Impossible
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.names import MANAGED_BY, MANAGER, SUBJECT
from provision.kube.queries import Listing, ListQuery, Live

_WORKLOADS = (
    ("v1", "pods"),
    ("v1", "persistentvolumeclaims"),
    ("apps/v1", "deployments"),
    ("apps/v1", "statefulsets"),
    ("apps/v1", "daemonsets"),
    ("batch/v1", "jobs"),
    ("batch/v1", "cronjobs"),
)
_OF_PROGRAMS = "nodefeatures.nfd.k8s-sigs.io"
"""What operands write about nodes in their own namespace, partly without an owner."""
_HELM = "meta.helm.sh/release-"
"""Helm's annotations say the release of an object; those of hooks say only that they are hooks."""
_HOOK = "helm.sh/hook"
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ForeignContents(KeyedResource):
    """Nobody else has workloads in an operator's namespace, or objects of the kinds that go with it.

    Objects with an owner are not counted: the owner is.

    Args:
        release: name of the operator's release.
        namespace: of the operator.
        definitions: names of the CustomResourceDefinitions that go, with the version that they serve.
    """

    kind: ClassVar[str] = "foreign-contents"

    release: str
    namespace: str
    definitions: tuple[tuple[str, str], ...]

    def _key_name(self) -> str:
        return self.namespace

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for workloads of the namespace, and for all objects of the kinds."""
        workloads = (ListQuery(api, plural, self.namespace) for api, plural in _WORKLOADS)
        parts = ((name.partition("."), version) for name, version in self.definitions)
        return (
            *workloads,
            *(ListQuery(f"{group}/{version}", plural) for (plural, _, group), version in parts),
        )

    def _foreign(self, snapshot: Snapshot) -> Iterator[str]:
        for query in self.queries():
            group = query.api.rpartition("/")[0]
            kind = f"{query.plural}.{group}" if group else query.plural
            listing: Listing = snapshot[query]
            for live in listing.objects:
                namespace = str(live.metadata.get("namespace") or "")
                is_reported = kind == _OF_PROGRAMS and namespace == self.namespace
                if not is_reported and self._is_foreign(live):
                    yield f"{kind}/{live.name}" + (f" in {namespace}" if namespace else "")

    def _is_foreign(self, live: Live) -> bool:
        of = tuple(live.annotations.get(f"{_HELM}{part}") for part in ("name", "namespace"))
        is_ours = live.labels.get(MANAGED_BY) == MANAGER or of == (self.release, self.namespace)
        is_owned = bool(live.metadata.get("ownerReferences")) or _HOOK in live.annotations
        return not (is_ours or is_owned or live.is_terminating)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name what is somebody else's."""
        return tuple(Change(Op.ATTENTION, name, "of somebody else", None) for name in self._foreign(snapshot))

    def fix(self, snapshot: Snapshot, /) -> Impossible:
        """Refuse: it would go with the namespace or with its kind."""
        names = tuple(self._foreign(snapshot))
        return self._refused(
            "OPERATOR_HAS_FOREIGN",
            f"{len(names)} objects of somebody else would go with {self.release}: {names[0]}"
            + (", ..." if names[1:] else ""),
            subject=SUBJECT,
            evidence=names[:_MOST_SHOWN],
            untouched="The operator, its namespace and its CRDs stay as they are.",
            remedy="Move or remove these objects and run the command again, or keep the operator declared.",
        )
