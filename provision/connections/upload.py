"""How large content reaches a host: one constant command, whose stdin says everything that varies.

The content is written below a folder that nobody else can change, while nobody else holds the host's lock.
"""

from __future__ import annotations

import base64

from provision.connections.folders import ENTER

COMMAND = (
    "exec /bin/sh -c '"
    'IFS= read -r functions && eval "$(printf %s "$functions" | base64 -d)" && provision_upload'
    "'"
)
"""Reads its functions as the first line of stdin; see `opening` for the others."""

RC_LOCKED = 75
"""Exit status where somebody else holds the lock; stdout is then `locked`, and what the lock file says."""

LINE = 4096
"""Bytes that the host's first line has at most."""

_FUNCTIONS = (
    ENTER
    + r"""provision_upload() {
set -eu
IFS= read -r p
IFS= read -r provision_size
IFS= read -r provision_lock
IFS= read -r provision_fresh
umask 077
provision_u=$(id -u) provision_d=${p%/*} provision_make=1 provision_umask=077 b=./${p##*/}
provision_way
[ -z "$provision_w" ] || provision_no "$p: $provision_q can be changed by $provision_w"
[ ! -L "$b" ] && [ ! -L "$b.part" ] || provision_no "$p is a symbolic link"
if [ -n "$provision_lock" ] && command -v flock >/dev/null; then
exec 9<>"$provision_lock"
flock -n 9 || { echo locked; cat -- "$provision_lock"; exit 75; }
fi
if [ -n "$provision_fresh" ]; then rm -f -- "$b" "$b.part"; fi
if [ -f "$b" ] && [ "$(wc -c <"$b")" -eq "$provision_size" ]; then echo "$provision_size"; exit 0; fi
[ -f "$b.part" ] || : >"$b.part"
provision_have=$(wc -c <"$b.part")
if [ "$provision_have" -gt "$provision_size" ]; then : >"$b.part"; provision_have=0; fi
echo "$((provision_have))"
cat >>"$b.part"
[ "$(wc -c <"$b.part")" -eq "$provision_size" ] || exit 1
sync -- "$b.part" 2>/dev/null || sync
mv -fT -- "$b.part" "$b"
}
"""
)


class UploadLockedError(Exception):
    """Somebody else holds the host's lock: nothing was sent.

    Args:
        holder: what the lock file says.
    """

    def __init__(self, holder: bytes) -> None:
        super().__init__("locked")
        self.holder = holder


def opening(path: str, size: int, lock: str = "", *, fresh: bool = False) -> bytes:
    """Return what stdin begins with; what the host has of the content follows as a number in a line.

    Args:
        path: absolute path of the file.
        size: bytes of the whole content.
        lock: file in a folder above the path, whose lock is held meanwhile; none if empty.
        fresh: an earlier attempt is thrown away.

    Raises:
        ValueError: a path holds a line break.
    """
    if "\n" in path or "\n" in lock:
        raise ValueError(f"{path!r} contains a line break")
    functions = base64.b64encode(_FUNCTIONS.encode("ascii")).decode("ascii")
    return f"{functions}\n{path}\n{size}\n{lock}\n{'1' if fresh else ''}\n".encode("utf-8", "surrogateescape")


def deadline(size: int) -> float:
    """Return how many seconds an upload may take in all: a minute, and 32 KiB each second."""
    return 60.0 + size / 32768
