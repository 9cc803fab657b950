"""From what the user types to an inventory file: a path, else the name of one that ships with the tool."""

from __future__ import annotations

from pathlib import Path

from provision.cli.state import usage
from provision.values.shipped import shipped_folder
from provision.values.suggestions import known_names

SUFFIXES = ("", ".yaml", ".yml")


def shipped() -> list[str]:
    """Return the names of the shipped inventories, as they can be typed."""
    return sorted(f"inventories/{path.name}" for path in shipped_folder("inventories").glob("*.yaml"))


def find_inventory(name: str) -> Path:
    """Return the file that a name means.

    A path that exists wins; then a shipped inventory by its relative name (`inventories/lab.yaml`, `lab`), so
    that the first command works in any folder.

    Raises:
        UsageError: there is neither.
    """
    path = Path(name)
    if name and path.exists():
        return path
    if name and not path.is_absolute():
        bare = name.removeprefix("./").removeprefix("inventories/")
        for suffix in SUFFIXES:
            file = shipped_folder("inventories") / (bare + suffix)
            if "/" not in bare and file.is_file():
                return file
    files = sorted(str(file) for file in path.parent.glob("*.y*ml") if file.is_file())
    raise usage(
        "INVENTORY_NOT_FOUND", f"there is no inventory {name}", known_names(name, [*files, *shipped()])
    )


def saved_plan(name: str) -> tuple[str, Path | None, str | None]:
    """Return what an argument of `apply` means: an inventory, its saved plan, and the playbook of the plan.

    Raises:
        UsageError: it looks like a saved plan and names no inventory.
    """
    path = Path(name)
    try:
        with path.open("rb") as stream:
            first = stream.read(1)
    except OSError:
        return name, None, None  # a directory, or the name of a shipped inventory: not ours to judge
    if first != b"{":
        return name, None, None
    import json  # noqa: PLC0415 - only for plans

    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return name, None, None  # YAML may begin with a brace too
    if not isinstance(content, dict) or "format" not in content:
        return name, None, None  # an inventory may be written as JSON, too
    file = content.get("file")
    if not isinstance(file, str):
        remedy = "make a new one: `provision plan INVENTORY --out FILE`"
        raise usage("PLAN_UNREADABLE", f"{name} is not a plan of this version", remedy)
    playbook = content.get("playbook")
    return file, path, playbook if isinstance(playbook, str) else None
