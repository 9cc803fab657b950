"""One of each: effect class, host resource with its question, role, system, hook, DHCP back end, command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from provision.connections.contracts import HttpsEndpoint, LocalEndpoint
from provision.contracts.change import Change, Key, Op
from provision.contracts.domain import Domain, Opening
from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.hook import Hook, Readiness
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import ApiCall, Fix, Remedy, Request
from provision.contracts.resource import KeyedResource, Resource
from provision.contracts.role import Context, Role
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import SystemSpec
from provision.hosts import names
from provision.hosts.roles.host_resources import HostSite
from provision.inventory import Inventory, Subject
from provision.inventory.models.host_resources import AddedResource
from provision.inventory.vocabulary import DhcpBackend, ResourceKind
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Source

SHOW_BANNER = EffectClass(
    36, "show-banner", "users see the new banner", Consent.ALLOW, script="wall /etc/banner", done_by_boot=True
)


# ---------------------------------------------------------------- a kind of host resource


@dataclass(frozen=True, slots=True)
class BannerText:
    """What /etc/banner says; answer: text, empty when it is not there."""

    kind: ClassVar[str] = "banner-text"


class BannerTextKind:
    """How a host is asked."""

    query = BannerText

    def script(self, queries: Sequence[BannerText]) -> str:
        del queries
        return "[ ! -e /etc/banner ] || cat /etc/banner"

    def parse(self, frame: Frame, queries: Sequence[BannerText]) -> Mapping[BannerText, object]:
        answer = frame.stdout.decode() if frame.rc == 0 else Unknown("/etc/banner cannot be read")
        return dict.fromkeys(queries, answer)


KINDS = {BannerText.kind: BannerTextKind()}


class BannerResource(AddedResource):
    """What people write."""

    text: str


@dataclass(frozen=True, slots=True)
class Banner(KeyedResource):
    """The text that /etc/banner has."""

    kind: ClassVar[str] = "banner"
    text: str

    def queries(self) -> tuple[Any, ...]:
        return (BannerText(),)

    def changes(self, snapshot: Snapshot) -> tuple[Change, ...]:
        text = snapshot[BannerText()]
        return () if text == self.text else (Change(Op.UPDATE, "text", text, self.text),)

    def fix(self, snapshot: Snapshot) -> Remedy:
        del snapshot
        return Fix(f"echo {self.text} >/etc/banner", effects=(Effect(SHOW_BANNER),))


def banners(site: HostSite, declared: BannerResource, source: Source | None) -> Iterator[Resource]:
    """Yield the banner."""
    yield Banner(site.system, site.filled(declared, source, declared.text), source=source)


# ---------------------------------------------------------------- a role, on a system of a kind of its own


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the cluster; answer: its data, None when it is not there."""

    name: str
    kind: ClassVar[str] = "object"


@dataclass(frozen=True, slots=True)
class NodeObject(KeyedResource):
    """An object that names a node."""

    kind: ClassVar[str] = "node-object"
    name: str

    @property
    def key(self) -> Key:
        return Key(self.system, self.kind, self.name)

    def queries(self) -> tuple[Any, ...]:
        return (Object(self.name),)

    def changes(self, snapshot: Snapshot) -> tuple[Change, ...]:
        data = snapshot[Object(self.name)]
        return () if data == self.name else (Change(Op.CREATE, "data", data, self.name),)

    def fix(self, snapshot: Snapshot) -> Remedy:
        del snapshot
        return ApiCall((Request("PUT", f"/objects/{self.name}", {"data": self.name}),))


STORED: dict[str, str] = {}
"""What the cluster has: it outlives sessions."""


@dataclass
class ObjectsDriver:
    """A cluster in memory."""

    system: str
    round_trips: int = 0
    asked: list[Any] = field(default_factory=list)

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        del cancel
        self.round_trips += 1
        return Snapshot(self.system, answers={query: STORED.get(query.name) for query in queries})

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        del run, effects, emit, cancel
        self.round_trips += 1
        for action in actions:
            assert isinstance(action.remedy, ApiCall)
            for request in action.remedy.requests:
                STORED[request.path.rsplit("/", 1)[-1]] = str(request.data["data"])
        return [Result(Verdict.DONE) for _ in actions]

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to release."""


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the cluster of objects."""
    del inventory
    return (SystemSpec("cluster/objects", "objects", "cluster", {}, lambda _: LocalEndpoint()),)


def open_objects(opening: Opening) -> ObjectsDriver:
    """Open it."""
    assert not isinstance(opening.endpoint, HttpsEndpoint)
    return ObjectsDriver(opening.spec.name)


def _questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    del inventory
    return {"cluster/objects": (Object(subject.name),), names.ssh(subject.name): ()}


def _resources(context: Context) -> tuple[Resource, ...]:
    return (NodeObject("cluster/objects", context.subject.name),)


ROLE = Role(
    name="node_object",
    needs=("host_resources",),
    declared=lambda _inventory, subject: subject.kind == "node",
    questions=_questions,
    resources=_resources,
)


# ---------------------------------------------------------------- a hook


def _wish(name: str) -> Callable[[Context], tuple[Resource, ...]]:
    return lambda context: (NodeObject("cluster/objects", f"{name}-{context.subject.name}"),)


def hooks(inventory: Inventory) -> tuple[Hook, ...]:
    """Return what the cluster does about a node whose users are shown a banner."""
    known = {Object(name): name for name in inventory.nodes}
    return (
        Hook(
            name="hush",
            affected=lambda _, name, cls: [Subject("node", name)] if cls is SHOW_BANNER else [],
            questions=lambda _: {"cluster/objects": tuple(known)},
            readiness=lambda context: {
                name: Readiness.READY
                for query, name in known.items()
                if context.answer("cluster/objects", query) is not None
            },
            before=_wish("hushed"),
            undo=_wish("sorry"),
            after=_wish("thanked"),
            limit=lambda inventory: inventory.cluster.max_unavailable,
            works_without=lambda *_: True,
            excess=SHOW_BANNER,
        ),
    )


# ---------------------------------------------------------------- a command


def banner(text: str) -> int:
    """Print a banner."""
    print(f"*** {text} ***")  # noqa: T201 - a command
    return 0


DOMAIN = Domain(
    "scratch",
    effects=(SHOW_BANNER,),
    systems=f"{__name__}:systems",
    drivers={"objects": f"{__name__}:open_objects"},
    query_kinds={"host": f"{__name__}:KINDS"},
    roles={"node_object": f"{__name__}:ROLE"},
    checks=("tests.scratch.checks",),
    backends={"scratch_dhcp": DhcpBackend("ssh", ("address",), ("reserve_first",))},
    hooks=f"{__name__}:hooks",
    resource_kinds={"banner": ResourceKind(f"{__name__}:BannerResource", f"{__name__}:banners")},
    commands={"banner": f"{__name__}:banner"},
)
