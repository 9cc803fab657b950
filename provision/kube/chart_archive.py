"""What a chart's archive says of its values: a pure reader of the format that Helm packs.

Source: helm.sh (Charts: files of a chart, subcharts and global values, aliases of dependencies).
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.kube.values import laid_over, unknown_paths

LARGEST = 4 * 1024 * 1024
"""Bytes of one file of a chart that is read, and of one packed subchart."""
DEEPEST = 4
"""Subcharts of subcharts."""
_COMMENTED = re.compile(r"(?m)^\s*#+\s*-?\s*([A-Za-z_][\w.-]*):")


@dataclass(frozen=True, slots=True)
class ChartDefaults:
    """The values that a chart knows.

    Args:
        tree: its defaults, with those of its subcharts under their names.
        commented: keys that its files name in comments only, as examples.
        is_strict: whether it has values at all; one without accepts anything.
    """

    tree: Mapping[str, Any]
    commented: frozenset[str] = field(default_factory=frozenset)
    is_strict: bool = True

    def unknown(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield the paths of values that no template of the chart can read, as far as that is sure."""
        if not self.is_strict:
            return
        for path in unknown_paths(values, self.tree):
            # `global` and `tags` are Helm's own; what a comment shows is an option without a default.
            if path.partition(".")[0] not in {"global", "tags"} and not self._is_commented(path):
                yield path

    def _is_commented(self, path: str) -> bool:
        return any(path == key or path.endswith(f".{key}") for key in self.commented)


def defaults_of(archive: bytes, depth: int = 0) -> ChartDefaults | None:
    """Return the values that a chart's archive knows; None where it is no chart's."""
    files = _files(archive)
    if files is None:
        return None
    top = min((name.split("/")[0] for name in files if name.endswith("/Chart.yaml")), default="")
    return _chart(files, top, depth) if top else None


def described(archive: bytes) -> tuple[str, str] | None:
    """Return name and version of a chart, as its Chart.yaml has them; None where it is no chart's."""
    files = _files(archive)
    top = min((name for name in files or () if name.endswith("/Chart.yaml")), key=len, default="")
    description = _mapping(files[top]) if files is not None and top else None
    if not description or not isinstance(description.get("name"), str):
        return None
    return description["name"], str(description.get("version") or "")


def _chart(files: Mapping[str, bytes], folder: str, depth: int) -> ChartDefaults | None:
    description = _mapping(files.get(f"{folder}/Chart.yaml", b""))
    text = files.get(f"{folder}/values.yaml", b"")
    own = _mapping(text)
    if description is None or own is None:
        return None
    commented = set(_COMMENTED.findall(text.decode("utf-8", "replace")))
    below: dict[str, Any] = {}
    for name, subchart in _subcharts(files, folder, depth):
        if subchart is None:
            below[name] = {}  # it accepts anything
            continue
        commented |= subchart.commented
        below |= dict.fromkeys(_names(description, name), subchart.tree)
    tree = laid_over(below, own)
    return ChartDefaults(tree, frozenset(commented), bool(own))


def _subcharts(
    files: Mapping[str, bytes], folder: str, depth: int
) -> Iterator[tuple[str, ChartDefaults | None]]:
    if depth >= DEEPEST:
        return
    prefix = f"{folder}/charts/"
    for name in sorted(
        {path.removeprefix(prefix).split("/")[0] for path in files if path.startswith(prefix)}
    ):
        packed = files.get(prefix + name)
        if packed is None:
            yield name, _chart(files, prefix + name, depth + 1)
        elif name.endswith(".tgz"):
            yield re.sub(r"-v?[0-9]+\..*$", "", name), defaults_of(packed, depth + 1)


def _names(description: Mapping[str, Any], name: str) -> set[str]:
    """Return the keys under which a chart gives values to a subchart: its aliases, else its name."""
    rows = description.get("dependencies")
    entries = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return {str(row.get("alias") or name) for row in entries if row.get("name") == name} or {name}


def _files(archive: bytes) -> dict[str, bytes] | None:
    """Return the files that describe values: nothing is unpacked to a disk."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
            for member in packed:
                name = member.name.removeprefix("./")
                described = name.endswith(("/Chart.yaml", "/values.yaml")) or (
                    name.endswith(".tgz") and "/charts/" in name
                )
                stream = packed.extractfile(member) if described and member.size <= LARGEST else None
                if stream is not None:
                    files[name] = stream.read(LARGEST)
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error):
        return None
    return files


def _mapping(text: bytes) -> Mapping[str, Any] | None:
    import yaml  # noqa: PLC0415 - slow: only where a chart is at hand

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    if data is None:
        return {}
    return data if isinstance(data, Mapping) else None
