"""Snapshots of etcd on a server's disk, and since when its tokens count.

Sources: docs.k3s.io (etcd-snapshot): `${data-dir}/server/db/snapshots` unless `etcd-snapshot-dir` names
another folder; each server keeps its own. A snapshot can be restored only with the token of its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from provision.contracts.query import Frame, Unknown
from provision.hosts.operations.basic import quote
from provision.hosts.resources.base import lines_of, no_answer
from provision.inventory import Inventory
from provision.k3s import paths


@dataclass(frozen=True, slots=True)
class EtcdSnapshots:
    """The files in a folder of snapshots, and when tokens were replaced on this server.

    Args:
        folder: where they are.
    """

    kind: ClassVar[str] = "etcd-snapshots"

    folder: str


@dataclass(frozen=True, slots=True, order=True)
class SnapshotFile:
    """One snapshot.

    Args:
        taken: seconds since 1970, when the file was written.
        name: of the file.
        size: bytes.
    """

    taken: float
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotListing:
    """What a server keeps.

    Args:
        files: the oldest first.
        replaced: seconds since 1970 of each replacement of the token, the oldest first.
    """

    files: tuple[SnapshotFile, ...] = ()
    replaced: tuple[float, ...] = ()

    def is_of_former_token(self, file: SnapshotFile) -> bool:
        """Whether a snapshot needs a token from the file of former tokens."""
        return any(file.taken < moment for moment in self.replaced)


class EtcdSnapshotsKind:
    """One fragment for all folders; of the file of former tokens only the first words leave the host."""

    query = EtcdSnapshots

    def script(self, queries: Sequence[EtcdSnapshots]) -> str:
        """Return the fragment."""
        folders = " ".join(quote(query.folder) for query in queries)
        return f"""for d in {folders}; do
  printf 'folder|%s\\n' "$d"
  for f in "$d"/*; do
    if [ -f "$f" ] && [ ! -L "$f" ]; then
      s=$(stat -c '%Y|%s' -- "$f") && printf 'file|%s|%s\\n' "$s" "${{f##*/}}"
    fi
  done
done
if [ -r {paths.FORMER_TOKENS} ]; then
  while read -r t _; do printf 'token|%s\\n' "$t"; done <{paths.FORMER_TOKENS}
fi
echo 'done|'"""

    def parse(self, frame: Frame, queries: Sequence[EtcdSnapshots]) -> Mapping[EtcdSnapshots, object]:
        """Return SnapshotListing or Unknown for each folder."""
        lines = lines_of(frame)
        files: dict[str, list[SnapshotFile]] = {}
        replaced: list[float] = []
        present: list[SnapshotFile] = []
        for line in lines:
            tag, _, rest = line.partition("|")
            if tag == "folder":
                present = files.setdefault(rest, [])
            elif tag == "file" and (file := _file(rest)) is not None:
                present.append(file)
            elif tag == "token" and (moment := _moment(rest)) is not None:
                replaced.append(moment)
        if "done|" not in lines:
            return dict.fromkeys(queries, no_answer(frame, "snapshots of etcd"))
        return {
            query: SnapshotListing(tuple(sorted(files[query.folder])), tuple(sorted(replaced)))
            if query.folder in files
            else Unknown(f"no answer about {query.folder}")
            for query in queries
        }


def _file(text: str) -> SnapshotFile | None:
    taken, _, rest = text.partition("|")
    size, _, name = rest.partition("|")
    return SnapshotFile(float(taken), name, int(size)) if _is_count(taken) and _is_count(size) else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18  # noqa: PLR2004 - any 64-bit number


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def folder(inventory: Inventory) -> str:
    """Return where servers keep their snapshots."""
    declared = inventory.k3s.config.get("etcd-snapshot-dir") if inventory.k3s is not None else None
    return str(declared or f"{paths.DATASTORE.path}/snapshots")
