"""What the library is put together from: playbooks, roles, drivers, folders."""

from __future__ import annotations

import os
from pathlib import Path

from provision.api.domains import domains, planned_role_names, role_references
from provision.contracts.role import Role
from provision.engine.environment import Options
from provision.inventory.playbook import VERIFY, Playbook, parse_playbook
from provision.inventory.scalars import near
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import UsageError
from provision.values.references import load_object
from provision.values.shipped import shipped_folder


def state_folder() -> Path:
    """Return the folder of caches and journal: `$PROVISION_STATE`, else the XDG state folder."""
    given = os.environ.get("PROVISION_STATE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "provision"


def read_playbook(name: str) -> Playbook:
    """Return a playbook by the name under which it ships, or by its file.

    Raises:
        UsageError: it is not there, or it is wrong.
    """
    import yaml  # noqa: PLC0415 - slow

    folder = shipped_folder("playbooks")
    path = next((path for path in (folder / f"{name}.yaml", Path(name)) if path.is_file()), None)
    if path is None:
        shipped = sorted(path.stem for path in folder.glob("*.yaml"))
        remedy = f"shipped are {', '.join(shipped)}; or name a file"
        raise UsageError(Diagnostic("PLAYBOOK_MISSING", f"there is no playbook {name!r}", remedy=remedy))
    try:
        # All scalars stay text: YAML 1.1 would turn the key `on` into true.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml, where PyYAML was built with it
        data = yaml.load(path.read_text(), Loader=loader)  # noqa: S506 - makes only text, lists, mappings
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(Diagnostic("PLAYBOOK_WRONG", f"{path}: {error}")) from None
    playbook = parse_playbook(data, str(path))
    known = sorted(domain.name for domain in domains() if domain.checks)
    unknown = [name for entry in playbook.entries for name in entry.checks if name not in known]
    if unknown:
        summary = f"{path}: `verify` names {', '.join(map(repr, unknown))}, which has no checks"
        remedy = f"write `verify: all`, or some of {', '.join(known)}"
        raise UsageError(Diagnostic("PLAYBOOK_WRONG", summary, remedy=remedy))
    return playbook


def roles_of(playbook: Playbook) -> dict[str, Role]:
    """Return the roles that a playbook names; those that are planned and do not exist yet are left out.

    Raises:
        UsageError: it names roles that nobody knows.
    """
    references, planned = role_references(), planned_role_names()
    names = dict.fromkeys(entry.role for entry in playbook.entries if entry.role != VERIFY)
    known = [*planned, *references]
    unknown = [
        Diagnostic(
            "ROLE_UNKNOWN",
            f"there is no role {name!r}{near(name, known)}",
            remedy=f"the roles are {', '.join(sorted(known))}",
        )
        for name in names
        if name not in known
    ]
    if unknown:
        raise UsageError(unknown)
    return {name: load_object(references[name]) for name in names if name in references}


def planned_roles(playbook: Playbook, options: Options, *, shipped: bool) -> tuple[Diagnostic, ...]:
    """Return one note on the roles that a user asks for by name and that are not supported yet, if any.

    An inventory that declares something for them is refused elsewhere. The shipped playbooks name all roles;
    with these, only what `--step` names was asked for.
    """
    planned = planned_role_names()
    asked = options.steps if shipped or options.steps else [entry.role for entry in playbook.entries]
    names = [name for name in dict.fromkeys(asked) if name in planned]
    if not names:
        return ()
    summary = f"not supported yet, and nothing is declared for it: {', '.join(names)}"
    return (Diagnostic("ROLE_UNSUPPORTED", summary, severity=Severity.NOTE),)


def is_shipped(playbook: str) -> bool:
    """Tell whether a playbook is one of ours, by its name."""
    return (shipped_folder("playbooks") / f"{playbook}.yaml").is_file()
