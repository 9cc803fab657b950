"""From files to one resolved tree: extends, overlays, ranges, profiles, drivers."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from provision.inventory.core_values import Scalar, to_int
from provision.inventory.reader import Unreadable, read_text, read_tree
from provision.inventory.tree import Item, Tree, merge
from provision.values.diagnostics import Diagnostic

_MAX_EXTENDS = 8
_MAX_NODES = 20_000
_MAX_WEIGHT = 10_000_000
_RANGE = re.compile(r"([^\[\]]*)\[([0-9]{1,6})-([0-9]{1,6})\]([^\[\]]*)").fullmatch


def resolve(
    path: Path, overlays: Sequence[Path], environ: Mapping[str, str]
) -> tuple[Tree | None, list[Diagnostic]]:
    """Return the resolved tree, and all problems met on the way; no tree where none can be had."""
    problems: list[Diagnostic] = []
    try:
        root = _read(path, environ, problems, ())
    except Unreadable as error:
        return None, [*problems, *error.problems]
    for overlay in overlays:
        try:
            root = merge(root, _read(overlay, environ, problems, ()))
        except Unreadable as error:
            problems += error.problems
    root = root.copy()
    for key, item in list((root.value if isinstance(root.value, dict) else {}).items()):
        if item.value is None:
            root.drop(key)
    _rename_gpu_cards(root)
    _resolve_nodes(root, problems)
    _name_hypervisors(root, problems)
    return Tree(root), problems


def _read(
    path: Path, environ: Mapping[str, str], problems: list[Diagnostic], readers: tuple[Path, ...]
) -> Item:
    shown = str(path)
    text = read_text(path, shown)
    folder = path.parent.absolute()
    root, more_problems = read_tree(text, shown, str(folder), environ)
    problems += more_problems
    extends = root.child("extends")
    if extends is None or not isinstance(extends.value, Scalar):
        return root
    try:
        base_path = path.parent / Path(str.__str__(extends.value)).expanduser()
        here, other = path.resolve(), base_path.resolve()
    except (RuntimeError, OSError, ValueError) as error:  # no such home folder; a name too long; NUL
        reason = getattr(error, "strerror", None) or "no such file name or home folder"
        summary = f"`extends` names no file: {reason}"
        problems.append(Diagnostic("INVENTORY_EXTENDS", summary, source=extends.source()))
        return root
    if other in {*readers, here} or len(readers) >= _MAX_EXTENDS:
        problems.append(
            Diagnostic("INVENTORY_EXTENDS", "`extends` refers back to this file", source=extends.source())
        )
        return root
    try:
        base = _read(base_path, environ, problems, (*readers, here))
    except Unreadable as error:
        first = error.problems[0]
        if len(error.problems) == 1 and first.source is None:
            problems.append(Diagnostic(first.code, first.summary, source=extends.source()))
        else:
            problems += error.problems
        return root
    made = merge(base, root)
    made.drop("extends")
    return made


def _rename_gpu_cards(root: Item) -> None:
    """Read a mapping under `gpus` (profiles, nodes, expect) as `gpu_cards`, which says what must be shown."""
    for section in ("profiles", "nodes"):
        items = root.child(section)
        if items is None or not isinstance(items.value, dict):
            continue
        made = items.copy()
        for name, item in items.value.items():
            made.put(name, _renamed(item), items.keys[name])
        root.put(section, made, root.keys.get(section))
    expect = root.child("expect")
    if expect is not None:
        root.put("expect", _renamed(expect), root.keys.get("expect"))


def _renamed(item: Item) -> Item:
    gpus = item.child("gpus")
    if gpus is None or not isinstance(gpus.value, dict) or item.child("gpu_cards") is not None:
        return item
    made = item.copy()
    where = item.keys["gpus"]
    made.drop("gpus")
    made.put("gpu_cards", gpus, where)
    return made


def _resolve_nodes(root: Item, problems: list[Diagnostic]) -> None:
    nodes = root.child("nodes")
    if nodes is None or not isinstance(nodes.value, dict):
        return
    made = nodes.copy()
    made.value, made.keys = {}, {}
    profiles = root.child("profiles")
    gpu = root.child("gpu")
    shared_driver = gpu.child("driver") if gpu is not None else None
    weight = 0
    too_many = _too_many(nodes)
    if too_many is not None:
        problems.append(too_many)
        root.put("nodes", made, root.keys.get("nodes"))
        return
    for pattern, item in nodes.value.items():
        where = nodes.keys[pattern]
        named = item.child("name")
        if named is not None:
            problems.append(
                Diagnostic(
                    "INVENTORY_UNKNOWN_KEY",
                    f"unknown key 'name' in nodes.{pattern}: a node's name is its key",
                    source=item.key_source("name"),
                )
            )
        for name, own in _expanded(pattern, item, nodes, problems):
            if not isinstance(own.value, dict):
                made.put(name, own, where)
                continue
            profile = profiles.child(str(_scalar(own, "profile"))) if profiles is not None else None
            node = merge(profile, own) if profile is not None else own.copy()
            _merge_driver(node, shared_driver)
            node.put("name", _made(name, own), where)
            weight += node.weight
            if weight > _MAX_WEIGHT:
                source = nodes.key_source(pattern)
                summary = f"nodes and profiles are too large: more than {_MAX_WEIGHT} values together"
                problems.append(Diagnostic("INVENTORY_TOO_LARGE", summary, source=source))
                root.put("nodes", made, root.keys.get("nodes"))
                return
            if name in made.value:
                summary = f"the node {name!r} is declared twice"
                problems.append(
                    Diagnostic("INVENTORY_DUPLICATE", summary, name, source=nodes.key_source(pattern))
                )
                continue
            made.put(name, node, where)
    root.put("nodes", made, root.keys.get("nodes"))


def _too_many(nodes: Item) -> Diagnostic | None:
    """Return the problem of more nodes than we take, at the line that makes them too many."""
    sizes = {pattern: _size(pattern) for pattern in nodes.value} if isinstance(nodes.value, dict) else {}
    total = sum(sizes.values())
    if total <= _MAX_NODES:
        return None
    so_far = itertools.accumulate(sizes.values())
    pattern = next(pattern for pattern, count in zip(sizes, so_far, strict=True) if count > _MAX_NODES)
    summary = f"too many nodes: {total} (limit {_MAX_NODES})"
    return Diagnostic("INVENTORY_TOO_LARGE", summary, source=nodes.key_source(pattern))


def _size(pattern: str) -> int:
    """Return how many nodes a name or a range stands for."""
    match = _RANGE(pattern)
    return 1 if match is None else max(0, int(match[3]) - int(match[2]) + 1)


def _merge_driver(node: Item, shared: Item | None) -> None:
    own = node.child("driver")
    if shared is None or (node.child("gpus") is None and node.child("gpu_cards") is None and own is None):
        return
    where = node.keys.get("driver")
    node.put("driver", shared if own is None else merge(shared, own), where)


def _name_hypervisors(root: Item, problems: list[Diagnostic]) -> None:
    hypervisors = root.child("hypervisors")
    if hypervisors is None or not isinstance(hypervisors.value, dict):
        return
    made = hypervisors.copy()
    for name, item in hypervisors.value.items():
        if not isinstance(item.value, dict):
            continue
        if "name" in item.value:
            problems.append(
                Diagnostic(
                    "INVENTORY_UNKNOWN_KEY",
                    f"unknown key 'name' in hypervisors.{name}: a hypervisor's name is its key; "
                    "did you mean node (its name in Proxmox VE)?",
                    source=item.key_source("name"),
                )
            )
        own = item.copy()
        own.put("name", _made(name, item), hypervisors.keys[name])
        made.put(name, own, hypervisors.keys[name])
    root.put("hypervisors", made, root.keys.get("hypervisors"))


def _made(text: str, near_item: Item) -> Item:
    scalar = Scalar(text)
    scalar.core = "str"
    scalar.folder = near_item.file.folder
    return Item(scalar, near_item.file, near_item.line, near_item.column)


def _scalar(item: Item, key: str) -> Scalar | None:
    child = item.child(key)
    return child.value if child is not None and isinstance(child.value, Scalar) else None


def _expanded(pattern: str, item: Item, nodes: Item, problems: list[Diagnostic]) -> list[tuple[str, Item]]:
    """Return the nodes of a range such as `gpu-[01-16]`; a plain name is itself."""
    match = _RANGE(pattern)
    if match is None:
        return [(pattern, item)]

    def problem(summary: str, key: str = "") -> None:
        below = item.child(key) if key else None
        source = below.source() if below is not None else nodes.key_source(pattern)
        problems.append(Diagnostic("INVENTORY_RANGE", summary, pattern, source=source))

    first, count = int(match[2]), _size(pattern)
    if not count:
        problem(f"the range {pattern!r} is empty: it ends before it begins")
        return []
    names = [f"{match[1]}{first + index:0{len(match[2])}d}{match[4]}" for index in range(count)]
    if not isinstance(item.value, dict):
        return [(name, item) for name in names]
    spread: dict[str, list[str]] = {
        "address": _addresses(_scalar(item, "address"), count, problem, "address")
    }
    vmid = _scalar(item, "vmid")
    if vmid is not None and vmid.core == "int":
        spread["vmid"] = [str(to_int(vmid) + index) for index in range(count)]
    rails = item.child("rail_addresses")
    rail_items = rails.value.items() if rails is not None and isinstance(rails.value, dict) else ()
    by_rail = {rail: _rail(each, count, problem) for rail, each in rail_items}
    made = []
    for index, name in enumerate(names):
        own = _one_of_range(item, spread, index)
        if rails is not None and by_rail:
            own.put("rail_addresses", _one_of_range(rails, by_rail, index), item.keys["rail_addresses"])
        made.append((name, own))
    return made


def _one_of_range(item: Item, spread: Mapping[str, list[str]], index: int) -> Item:
    """Return a mapping with the values that node number `index` has of a range."""
    own = item.copy()
    for key, texts in spread.items():
        if texts:
            _replace(own, key, texts[index], "int" if key == "vmid" else "str")
    return own


Problem = Callable[[str, str], None]


def _rail(item: Item, count: int, problem: Problem) -> list[str]:
    """Return the addresses with prefix of `first-last/prefix`, one a node."""
    if not isinstance(item.value, Scalar):
        return []
    spread, slash, prefix = item.value.partition("/")
    return [address + slash + prefix for address in _addresses(spread, count, problem, "rail_addresses")]


def _addresses(text: str | None, count: int, problem: Problem, key: str) -> list[str]:
    """Return the addresses of `first-last`, one a node; none where that is impossible."""
    if text is None:
        return []
    low_text, dash, high_text = text.partition("-")
    try:
        low = ipaddress.IPv4Address(low_text.strip())
        high = ipaddress.IPv4Address(high_text.strip()) if dash else low
    except ValueError:
        problem("a range of nodes needs a range of addresses like 10.0.0.1-10.0.0.16", key)
        return []
    have = int(high) - int(low) + 1
    if have != count:
        problem(f"the range names {count} nodes, but {max(0, have)} addresses", key)
        return []
    return [str(low + index) for index in range(count)]


def _replace(item: Item, key: str, text: str, core: str = "str") -> None:
    old = item.child(key)
    assert old is not None  # noqa: S101 - the caller read it
    scalar = Scalar(text)
    scalar.core = core
    scalar.folder = old.file.folder
    item.put(key, Item(scalar, old.file, old.line, old.column, old.width), item.keys.get(key))
