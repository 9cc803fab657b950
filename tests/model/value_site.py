"""Three servers and two agents in memory: servers share a generated token, agents join with the full token.

The first server makes the full token itself, of its own certificate and the generated token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from provision.api import Options, Site
from provision.api.domains import load_inventory
from provision.connections.contracts import Endpoint
from provision.contracts.change import Change
from provision.contracts.driver import Driver
from provision.contracts.generated import GeneratedValue
from provision.contracts.resource import AnswerId, Resource
from provision.contracts.role import Context, Need, Role
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.engine.environment import Environment
from provision.engine.model import RunReport
from provision.hosts.generated_values import generated_value
from provision.hosts.queries.secret import SecretText
from provision.hosts.resources.file import File
from provision.inventory import Inventory, Subject
from provision.inventory.playbook import Entry, Playbook
from provision.testing.model_host import ModelFile, guest_state
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from tests.model.model_site import Counted, Host, ModelSite

SERVERS, AGENTS = ("s1", "s2", "s3"), ("a1", "a2")
TOKEN = "/etc/lab/token"
FULL_TOKEN = SecretText("/var/lib/lab/full-token")
AGENT_TOKEN = "/etc/lab/agent-token"
MOTD = "/etc/motd"
NEXT = "/var/lib/provision/values/lab-token"
INVENTORY = """
version: 1
name: lab
access: { user: root }
nodes:
""" + "".join(
    f"  {name}: {{ address: 198.51.100.{number} }}\n" for number, name in enumerate((*SERVERS, *AGENTS), 1)
)


def values(_inventory: Inventory) -> Sequence[GeneratedValue]:
    return (generated_value("lab-token", {f"{name}/ssh": TOKEN for name in SERVERS}),)


@dataclass(frozen=True, slots=True)
class TokenFile(File):
    """The token of a server; with it the first server makes the full token."""

    def affects(self, _changes: Sequence[Change], /) -> frozenset[AnswerId]:
        return frozenset({("s1/ssh", FULL_TOKEN)}) if self.system == "s1/ssh" else frozenset()


def server_questions(_inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    return {f"{subject.name}/ssh": ()}


def server(context: Context) -> Sequence[Resource]:
    token = context.generated.value("lab-token").get_secret_value()
    return [TokenFile(f"{context.subject.name}/ssh", TOKEN, f"{token}\n".encode(), "0600", secret=True)]


def agent_questions(_inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    return {f"{subject.name}/ssh": (), "s1/ssh": (FULL_TOKEN,)}


def agent(context: Context) -> Sequence[Resource]:
    context.generated.value("lab-token")
    full = context.require("s1/ssh", FULL_TOKEN).get_secret_value()
    system = f"{context.subject.name}/ssh"
    return [
        File(system, AGENT_TOKEN, f"{full}\n".encode(), "0600", secret=True),
        File(system, MOTD, b"welcome\n"),
    ]


def declared(_inventory: Inventory, _subject: Subject) -> bool:
    return True


ROLES = {
    "server": Role("server", declared, server_questions, server, generates=values),
    "agent": Role(
        "agent", declared, agent_questions, agent, generates=values, needs=(Need("server", scope="site"),)
    ),
}
PLAYBOOK = Playbook("lab", (Entry("server", SERVERS, serial=1, stop_on_failure=True), Entry("agent", AGENTS)))


class FirstServer(Counted):
    """Makes the full token of the token that it has."""

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        files = cast("Host", self.inner).state.files
        if TOKEN in files:
            files[FULL_TOKEN.path] = ModelFile(b"K10certificate::" + files[TOKEN].content)
        return super().answer(queries, cancel)


def _gone(reason: NotThere, _snapshots: object) -> NotThere:
    return reason


class ValueSite(ModelSite):
    """The machines; what one does not say may be why the token is not known."""

    def __init__(self, folder: Path) -> None:
        file = folder / "lab.yaml"
        file.write_text(INVENTORY)
        super().__init__(load_inventory(file), folder / "state")
        self.silent: set[str] = set()
        self.away: dict[str, NotThere] = {}

    def open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.subject in self.silent:
            raise Permanent(Diagnostic("HOST_SILENT", f"{spec.name} does not answer", spec.name))
        driver = super().open(spec, endpoint)
        return FirstServer(driver.inner) if spec.name == "s1/ssh" and isinstance(driver, Counted) else driver

    def site(self) -> Site:
        site = super().site()
        site.__dict__["environment"] = self._environment(site.environment)
        return site

    def _environment(self, environment: Environment) -> Environment:
        specs = {
            name: replace(spec, endpoint=partial(_gone, self.away[spec.subject]))
            if spec.subject in self.away
            else spec
            for name, spec in environment.systems.items()
        }
        return replace(
            environment,
            playbook=PLAYBOOK,
            roles=ROLES,
            systems=specs,
            select=lambda selector: [Subject("node", selector)],
        )

    def rotate(self) -> RunReport:
        """Ask for a new token and bring it to all, in one apply."""
        return self.apply(Options(rotate=frozenset({"lab-token"})))

    def tokens(self) -> dict[str, str]:
        """Return the token that each machine has; machines without one are left out."""
        paths = {**dict.fromkeys(SERVERS, TOKEN), **dict.fromkeys(AGENTS, AGENT_TOKEN)}
        return {
            name: self.hosts[f"{name}/ssh"].state.text(path).strip().removeprefix("K10certificate::")
            for name, path in paths.items()
            if path in self.hosts[f"{name}/ssh"].state.files
        }

    def kept(self) -> dict[str, str]:
        """Return the new token where it is kept during a rotation."""
        hosts = ((name, self.hosts[f"{name}/ssh"].state) for name in (*SERVERS, *AGENTS))
        return {name: state.text(NEXT) for name, state in hosts if NEXT in state.files}

    def one_token(self) -> str:
        """Return the token that all machines share."""
        tokens = self.tokens()
        assert set(tokens) == {*SERVERS, *AGENTS}
        (token,) = set(tokens.values())
        return token

    def rebuild(self, name: str) -> None:
        """Let a machine begin from its image: nothing of former runs is left on it."""
        self.hosts[f"{name}/ssh"].state = guest_state(name)

    def saved_plan(self, path: Path) -> str:
        """Return what a plan in a new session saves."""
        site = self.site()
        plan = site.plan(Options(), self.events.append, Cancel())
        site.save(plan, path)
        site.close()
        return path.read_text()
