"""Access to a Proxmox VE host: what the host is, and the scripts that create role, user and token.

The scripts use `pveum`, `pvesh` and `pvesm`, as root on the host, as the host's own manual has it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.facts import MEMORY
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.queries.system import Bridges
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.proxmox.host_facts import HypervisorFacts
from provision.proxmox.privileges import USER, paths, role
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

ROLE = "Provision"
HOST_ROLE = "ProvisionHost"
"""The role on `/` alone: what a VM's `startup` takes there, and before Proxmox VE 9 a download."""
FILE_BASED = frozenset({"dir", "nfs", "cifs", "btrfs", "cephfs"})
"""Types of storages that can hold images and snippets."""
MADE_ELSEWHERE = frozenset({"iscsi", "iscsidirect"})
"""Types whose volumes their target has made: no disk can be made in them, although they list `images`."""
_VERSION, _ROLES, _USERS = (
    Shell("pveversion"),
    Shell("pveum role list --output-format json"),
    Shell("pveum user list --output-format json"),
)
_TOKENS = Shell(f"pveum user token list {USER} --output-format json")
_NODE = Shell("uname -n")
_ADDRESSES, _ROUTE = Shell("ip -o -4 address show scope global"), Shell("ip -4 route show default")
_STORAGES = Shell('n=$(uname -n); pvesh get "/nodes/${n%%.*}/storage" --output-format json')


@dataclass(frozen=True, slots=True)
class ProxmoxStorage:
    """A storage of the node: its name, type and content types."""

    name: str
    type: str
    content: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProxmoxHost:
    """What a Proxmox VE host is.

    Args:
        node: node name in Proxmox VE.
        version: as `pveversion` says it.
        roles: privileges by role.
        users: user ids.
        tokens: names of our user's tokens.
        storages: active storages.
        bridges: names of its network bridges.
        functions: PCI functions.
        memory: MiB.
        networks: interface by address with prefix length: a bridge may have several.
        gateway: of the default route, empty without one.
    """

    node: str
    version: str
    roles: Mapping[str, tuple[str, ...]]
    users: tuple[str, ...]
    tokens: tuple[str, ...]
    storages: tuple[ProxmoxStorage, ...]
    bridges: tuple[str, ...]
    functions: tuple[PciFunction, ...]
    memory: int
    networks: Mapping[str, str] = field(default_factory=dict)
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """Storages by use; empty where there is none."""

    images: str
    disks: str
    snippets: str

    def missing(self, host: ProxmoxHost) -> dict[str, tuple[str, ...]]:
        """Return the content types that have to be enabled, by storage."""
        contents: dict[str, list[str]] = {}
        for name, kind in ((self.images, "import"), (self.snippets, "snippets")):
            storage = next((each for each in host.storages if each.name == name), None)
            if storage is not None and kind not in storage.content:
                contents.setdefault(name, []).append(kind)
        return {name: tuple(kinds) for name, kinds in contents.items()}


QUERIES = frozenset(
    {
        *(_VERSION, _ROLES, _USERS, _TOKENS, _NODE, _STORAGES, _ADDRESSES, _ROUTE),
        *(MEMORY, PciFunctions(), Bridges()),
    }
)
"""What `read_host` reads."""


def read_host(snapshot: Snapshot, host: str) -> ProxmoxHost:
    """Return what a host is, from its answers to `QUERIES`.

    Raises:
        Permanent: it is not Proxmox VE, or one of its own tools fails.
    """
    facts = HypervisorFacts(snapshot)
    if not facts.output(_VERSION):
        summary = f"{host} has no pveversion: it is not Proxmox VE"
        raise Permanent(Diagnostic("NO_PROXMOX", summary, host, untouched="Nothing was changed."))
    memory, functions = facts.memory, facts.functions
    route = facts.output(_ROUTE).split()[:3]
    return ProxmoxHost(
        node=facts.output(_NODE).strip().partition(".")[0],
        version=facts.output(_VERSION).strip(),
        roles={str(each["roleid"]): _list(each.get("privs")) for each in _rows(facts, host, _ROLES)},
        users=tuple(str(each["userid"]) for each in _rows(facts, host, _USERS)),
        tokens=tuple(str(each["tokenid"]) for each in _rows(facts, host, _TOKENS, lenient=True)),
        storages=tuple(
            ProxmoxStorage(str(each["storage"]), str(each["type"]), _list(each.get("content")))
            for each in _rows(facts, host, _STORAGES)
            if each.get("active", 1) and each.get("enabled", 1)
        ),
        bridges=facts.bridges,
        functions=() if isinstance(functions, Unknown) else functions,
        networks={
            row[3]: row[1]
            for line in facts.output(_ADDRESSES).splitlines()
            if len(row := line.split()) > 3  # noqa: PLR2004 - number, interface, family, address
        },
        gateway=route[2] if route[:2] == ["default", "via"] else "",
        memory=0 if isinstance(memory, Unknown) else memory,
    )


def choose(host: ProxmoxHost) -> StorageChoice:
    """Return the storages to use: those that can already, else those that could."""

    def first(content: str) -> str:
        files = [each for each in host.storages if each.type in FILE_BASED]
        ready = [each for each in files if content in each.content]
        return next((each.name for each in (*ready, *files)), "")

    able = [each for each in host.storages if "images" in each.content and each.type not in MADE_ELSEWHERE]
    blocks = [each for each in able if each.type not in FILE_BASED]
    disks = next((each.name for each in (*blocks, *able)), "")
    return StorageChoice(first("import"), disks, first("snippets"))


def grant(host: ProxmoxHost, choice: StorageChoice, token: str, *, rotate: bool = False) -> str:
    """Return the script that makes role, user and a privilege-separated token, and prints that as JSON.

    It can be repeated: what is there is brought to the same state. A token that is there stays, and nothing
    is printed, unless it is renewed.

    Args:
        host: what the host is.
        choice: the storages that the role is given on.
        token: the token's name.
        rotate: make the token again: the old secret ends.
    """
    known = host.roles.get("Administrator", ())
    roles = {ROLE: role(known)[0], HOST_ROLE: role(known, root=True)[0]}
    used = [each for each in (choice.images, choice.disks, choice.snippets) if each]
    given = [[path, "--roles", ROLE] for path in paths(host.node, used)]
    given.append(["/", "--roles", HOST_ROLE, "--propagate", "0"])
    full = f"{USER}!{token}"
    commands: list[list[str]] = [
        ["pveum", "role", "modify" if name in host.roles else "add", name, "--privs", ",".join(privileges)]
        for name, privileges in roles.items()
    ]
    if USER not in host.users:
        commands.append(["pveum", "user", "add", USER, "--comment", "provision: by its tokens only"])
    commands += [["pveum", "acl", "modify", *where, "--users", USER] for where in given]
    lines = ["set -eu", *(f"{shlex.join(each)} >/dev/null" for each in commands)]
    there = token in host.tokens
    if there and rotate:
        lines.append(f"{shlex.join(['pveum', 'user', 'token', 'remove', USER, token])} >/dev/null")
    if not there or rotate:
        add = ["pveum", "user", "token", "add", USER, token, "--privsep", "1", "--output-format", "json"]
        lines.append(shlex.join(add))
    # The rights of such a token are those that both it and its user have.
    lines += [
        f"{shlex.join(['pveum', 'acl', 'modify', *where, '--tokens', full])} >/dev/null" for where in given
    ]
    return "\n".join(lines) + "\n"


def enable(host: ProxmoxHost, missing: Mapping[str, Sequence[str]]) -> str:
    """Return the script that adds content types to storages; those that are enabled stay."""
    lines = ["set -eu"]
    for storage in host.storages:
        if storage.name in missing:
            content = ",".join(dict.fromkeys((*storage.content, *missing[storage.name])))
            lines.append(shlex.join(["pvesm", "set", storage.name, "--content", content]))
    return "\n".join(lines) + "\n"


def _rows(
    facts: HypervisorFacts, host: str, query: Shell, *, lenient: bool = False
) -> list[dict[str, object]]:
    try:
        rows = json.loads(facts.output(query))
        return [dict(each) for each in rows]
    except (ValueError, TypeError, RecursionError):
        if lenient:  # a user that is not there has no tokens
            return []
    answer = facts.answer(query)
    words: tuple[str, ...] = ()
    if isinstance(answer, ShellResult):
        words = tuple(answer.stderr.decode("utf-8", "replace").splitlines()[-5:])
    elif isinstance(answer, Unknown):
        words = (answer.reason,)
    summary = f"{host}: `{query.command}` gives no answer"
    raise Permanent(Diagnostic("BOOTSTRAP_FAILED", summary, host, evidence=words))


def _list(value: object) -> tuple[str, ...]:
    """Return a list that PVE prints as text with commas, or as an object whose keys count."""
    if isinstance(value, Mapping):
        return tuple(str(each) for each in value)
    return tuple(each for each in str(value or "").replace(" ", ",").split(",") if each)
