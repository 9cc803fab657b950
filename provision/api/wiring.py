"""What the library is put together from: playbooks, roles, drivers, folders."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from pathlib import Path

import provision.roles
from provision.connections.contracts import (
    Endpoint,
    HttpsEndpoint,
    LocalEndpoint,
    ShellConnection,
    SshEndpoint,
)
from provision.contracts.driver import Driver
from provision.contracts.role import Role
from provision.contracts.system import SystemSpec
from provision.engine.expand import VERIFY, parse_playbook
from provision.engine.run_identity import who
from provision.engine.world import Options, Playbook
from provision.inventory import PLANNED_ROLES, Inventory
from provision.inventory.scalars import near
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import UsageError
from provision.values.redaction import Redactor
from provision.values.shipped import shipped_folder


def state_folder() -> Path:
    """Return the folder of caches and journal: `$PROVISION_STATE`, else the XDG state folder."""
    given = os.environ.get("PROVISION_STATE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "provision"


def open_system(inventory: Inventory, redactor: Redactor, spec: SystemSpec, endpoint: Endpoint) -> Driver:
    """Return the driver of a real system; nothing is sent yet."""
    # Transports are slow to import, and only some of them are needed: hence the late imports.
    if isinstance(endpoint, HttpsEndpoint):
        from provision.connections.https import PveConnection  # noqa: PLC0415 - slow, late
        from provision.proxmox import names  # noqa: PLC0415 - slow, late
        from provision.proxmox.driver import ProxmoxDriver  # noqa: PLC0415 - slow, late

        node = inventory.hypervisors[spec.subject].node_name
        vms = names.nodes_of(inventory, spec.subject)
        vmids = {each.name: each.vmid for each in vms if each.vmid is not None}
        return ProxmoxDriver(spec.name, PveConnection(endpoint, spec.subject), node, vmids=vmids)
    from provision.hosts.driver import HostDriver  # noqa: PLC0415 - slow, late
    from provision.hosts.query_kinds import HOST_KINDS  # noqa: PLC0415 - slow, late

    connection: ShellConnection
    if isinstance(endpoint, SshEndpoint):
        from provision.connections.ssh import SshConnection  # noqa: PLC0415 - slow, late

        connection = SshConnection(endpoint, spec.name)
    elif isinstance(endpoint, LocalEndpoint):
        from provision.connections.local import LocalConnection  # noqa: PLC0415 - slow, late

        connection = LocalConnection()
    return HostDriver(spec.name, connection, HOST_KINDS, who=who(), redactor=redactor)


def read_playbook(name: str) -> Playbook:
    """Return a playbook by the name under which it ships, or by its file.

    Raises:
        UsageError: it is not there, or it is wrong.
    """
    import yaml  # noqa: PLC0415 - slow

    folder = shipped_folder("playbooks")
    path = next((each for each in (folder / f"{name}.yaml", Path(name)) if each.is_file()), None)
    if path is None:
        shipped = sorted(each.stem for each in folder.glob("*.yaml"))
        remedy = f"shipped are {', '.join(shipped)}; or name a file"
        raise UsageError(Diagnostic("PLAYBOOK_MISSING", f"there is no playbook {name!r}", remedy=remedy))
    try:
        # All scalars stay text: YAML 1.1 would turn the key `on` into true.
        data = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - makes only text, lists, mappings
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(Diagnostic("PLAYBOOK_WRONG", f"{path}: {error}")) from None
    return parse_playbook(data, str(path))


def roles_of(playbook: Playbook) -> dict[str, Role]:
    """Return the roles that a playbook names; those that are planned and do not exist yet are left out.

    Raises:
        UsageError: it names roles that nobody knows.
    """
    roles: dict[str, Role] = {}
    unknown: list[str] = []
    for name in dict.fromkeys(entry.role for entry in playbook.entries if entry.role != VERIFY):
        role = _role(name)
        if role is not None:
            roles[name] = role
        elif name not in PLANNED_ROLES:
            unknown.append(name)
    if unknown:
        known = [*PLANNED_ROLES, *_all_roles()]
        remedy = f"the roles are {', '.join(sorted(known))}"
        raise UsageError(
            [
                Diagnostic("ROLE_UNKNOWN", f"there is no role {name!r}{near(name, known)}", remedy=remedy)
                for name in unknown
            ]
        )
    return roles


def _role(name: str) -> Role | None:
    module = f"provision.roles.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module) is None:
        return None
    role: Role | None = getattr(importlib.import_module(module), "ROLE", None)
    return role


def _all_roles() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(provision.roles.__path__))
    return [name for name in names if _role(name) is not None]


def planned_roles(playbook: Playbook, options: Options, *, shipped: bool) -> tuple[Diagnostic, ...]:
    """Return one note on the roles that a user asks for by name and that are not supported yet, if any.

    An inventory that declares something for them is refused elsewhere. The shipped playbooks name all roles;
    with these, only what `--step` names was asked for.
    """
    asked = options.steps if shipped or options.steps else [entry.role for entry in playbook.entries]
    names = [name for name in dict.fromkeys(asked) if name in PLANNED_ROLES and _role(name) is None]
    if not names:
        return ()
    summary = f"not supported yet, and nothing is declared for it: {', '.join(names)}"
    return (Diagnostic("ROLE_UNSUPPORTED", summary, severity=Severity.NOTE),)


def is_shipped(playbook: str) -> bool:
    """Tell whether a playbook is one of ours, by its name."""
    return (shipped_folder("playbooks") / f"{playbook}.yaml").is_file()
