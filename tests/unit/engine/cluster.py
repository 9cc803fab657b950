"""A fake cluster beside fake hosts: Node objects that are ready, cordoned and hold pods, and its hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts import common_effects
from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.hook import Hook, Readiness
from provision.contracts.role import Context
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import SystemSpec, Way
from provision.hosts import host_effects
from provision.inventory import Inventory, Subject
from provision.k3s.k3s_effects import RESTART_K3S
from provision.kube.kube_effects import DRAIN
from provision.values.consent import Consent
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own

API = "cluster/api"
REBOOT = host_effects.REBOOT_NODE
EXCESS = EffectClass(125, "exceed", "more nodes are away at once than the inventory allows")
ALLOWED = dict.fromkeys((REBOOT, DRAIN, RESTART_K3S, common_effects.REPLACE), Consent.ALLOW)
TAKES_AWAY = (host_effects.REBOOT_HYPERVISOR, REBOOT, RESTART_K3S, common_effects.REPLACE)


@dataclass(frozen=True, slots=True)
class Uncordoned(Item):
    """A node that provision itself has cordoned takes pods again; a cordon of others stays."""

    kind: ClassVar[str] = "uncordoned"

    @property
    def key(self) -> Key:
        return Key(self.system, self.kind, self.name)

    def changes(self, snapshot: Snapshot) -> tuple[Change, ...]:
        cordoned = snapshot[Value(self.name)] == "provision"
        return (Change(Op.UPDATE, "cordoned", "provision", None),) if cordoned else ()


def uncordoned(name: str) -> Uncordoned:
    return Uncordoned(API, f"cordon {name}", "")


@dataclass
class Cluster:
    """Its nodes, its hook, and what happened.

    Args:
        nodes: by name whether each is ready; None for a machine that has no Node object yet.
        servers: they answer for the cluster; more than half of them must be ready.
        limit: how many nodes may be away at once.
        guests: nodes that go down with a hypervisor, by its name.
        asks_for_cordon: a cordon needs the consent of a drain, too.
    """

    nodes: Mapping[str, bool | None]
    servers: tuple[str, ...] = ("n1",)
    limit: int = 1
    guests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asks_for_cordon: bool = True
    history: list[str] = field(default_factory=list)
    undrained: list[str] = field(default_factory=list)
    most_away: int = 0

    def __post_init__(self) -> None:
        self.api = Host(is_api=True)
        for name, is_ready in self.nodes.items():
            if is_ready is not None:
                self.join(name, is_ready=is_ready)

    def join(self, name: str, *, is_ready: bool = True) -> None:
        """Register a Node object."""
        self.api.values[f"node {name}"] = "ready" if is_ready else "away"
        self.api.values.setdefault(f"pods {name}", "2")

    # ------------------------------------------------------------ the hook

    def hook(self) -> Hook:
        return Hook(
            name="drain",
            affected=self.affected,
            questions=lambda _: {
                API: tuple(Value(f"{what} {name}") for name in self.nodes for what in ("node", "cordon"))
            },
            readiness=self.readiness,
            before=self.before,
            undo=lambda context: [uncordoned(context.subject.name)],
            after=self.after,
            limit=lambda _: self.limit,
            works_without=self.works_without,
            excess=EXCESS,
            risks=(DRAIN,),
        )

    def affected(self, _inventory: Inventory, subject: str, cls: EffectClass) -> list[Subject]:
        names = self.guests.get(subject, (subject,)) if cls in TAKES_AWAY else ()
        return [Subject("node", name) for name in names if name in self.nodes]

    def readiness(self, context: Context) -> dict[str, Readiness]:
        readiness = {}
        for name in self.nodes:
            node = context.answer(API, Value(f"node {name}"))
            if node is not None:
                ready = (
                    Readiness.SET_ASIDE if context.answer(API, Value(f"cordon {name}")) else Readiness.READY
                )
                readiness[name] = ready if node == "ready" else Readiness.AWAY
        return readiness

    def before(self, context: Context) -> list[Item]:
        name = context.subject.name
        drain = (Effect(DRAIN, name),)
        cordon = Item(API, f"cordon {name}", "provision", risks=drain if self.asks_for_cordon else ())
        return [cordon, Item(API, f"pods {name}", "0", risks=drain)]

    def after(self, context: Context) -> list[Item]:
        name = context.subject.name
        return [Item(API, f"node {name}", "ready", impossible=True), uncordoned(name)]

    def works_without(self, _inventory: Inventory, names: frozenset[str]) -> bool:
        return 2 * len(set(self.servers) - names) > len(self.servers)

    # ------------------------------------------------------------ the site

    def site(self, *roles: FakeRole, **more: object) -> FakeSite:
        """Return a site with this cluster, whose interface is reached through any of its servers."""
        ways = [Way({f"{name}/ssh": (Value("os"),)}, here) for name in self.servers]
        spec = SystemSpec(API, "api", "cluster", ways[0].questions, here, alternatives=tuple(ways[1:]))
        return FakeSite(
            [*roles, self.uncordon_role()],
            subjects=(*self.guests, *self.nodes),
            hosts={API: self.api},
            specs={API: spec},
            policy=dict(ALLOWED),
            hooks=(self.hook(),),
            on_boot=self.on_boot,
            on_set=self.on_set,
            **more,  # type: ignore[arg-type]  # fields of a dataclass by name
        )

    def uncordon_role(self) -> FakeRole:
        return FakeRole(
            "uncordon",
            lambda context: [uncordoned(context.subject.name)],
            lambda name: {API: (Value(f"cordon {name}"),)},
            subjects=frozenset(self.nodes),
        )

    def on_boot(self, system: str, is_up: bool) -> None:
        subject = system.partition("/")[0]
        for name in self.guests.get(subject, (subject,)):
            values = self.api.values
            if values.get(f"node {name}") is None:
                continue
            if not is_up and values[f"node {name}"] == "ready" and values[f"pods {name}"] != "0":
                self.undrained.append(name)
            values[f"node {name}"] = "ready" if is_up else "away"
        self.note(f"{'up' if is_up else 'down'} {subject}")

    def on_set(self, system: str, name: str, value: str) -> None:
        if system != API:
            return
        if name.startswith("cordon ") and not value:
            self.api.values[name.replace("cordon", "pods")] = "2"
        self.note(f"{name}={value}")

    def note(self, event: str) -> None:
        """Take down what happened, and how many nodes cannot be used."""
        self.history.append(event)
        self.most_away = max(self.most_away, len(self.away()))

    def away(self) -> set[str]:
        """Return the nodes that take no pods."""
        values = self.api.values
        return {
            name
            for name in self.nodes
            if values.get(f"node {name}") == "away" or values.get(f"cordon {name}")
        }

    def events(self, name: str) -> list[str]:
        """Return what happened to one node."""
        return [event for event in self.history if name in event.partition("=")[0].split()]


def driver_role(*names: str) -> FakeRole:
    """A driver that needs a reboot."""
    return FakeRole(
        "driver",
        lambda context: [Item(f"{context.subject.name}/ssh", "driver", "1", boots=REBOOT)],
        on_own(),
        subjects=frozenset(names) or None,
    )
