"""What fixes are made of: operations as data. The shell is rendered from them, ModelHost interprets them.

Every operation may be run again after a kill at any point: it ends in the same state.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import SecretStr

from provision.contracts.effect import Effect
from provision.contracts.remedy import Blob, Fix
from provision.hosts.operations import apt_locks
from provision.hosts.operations.placement import ANY, KEEP, deduplicated, placed, saved_name

INLINE_LIMIT = 64 * 1024
"""Content up to this many bytes goes inline; larger content is a blob."""


@runtime_checkable
class Operation(Protocol):
    """One thing that a fix does; a frozen dataclass."""

    def shell(self) -> str:
        """Return it as a POSIX fragment for `set -eu`."""


def quote(text: str) -> str:
    """Return a shell literal."""
    return shlex.quote(text)


def words(items: Iterable[str]) -> str:
    """Return shell literals separated by spaces."""
    return " ".join(shlex.quote(item) for item in items)


def temporary_prefix(path: str) -> str:
    """Return how the names of unfinished files beside `path` begin, by which leftovers of a killed run go."""
    return f".provision-{hashlib.sha256(path.encode()).hexdigest()[:8]}."


_PRINTABLE = re.compile(rb"[\t\n -~]*").fullmatch


def _literal(content: bytes) -> str:
    """Return a command that prints the content; no process sees it in its arguments (printf is built in)."""
    if not content:
        return ":"
    # quotes grow in text that is quoted twice
    if _PRINTABLE(content) and content.count(b"'") * 64 <= len(content):
        return f"printf %s {quote(content.decode('ascii'))}"
    return f"printf %s {quote(base64.b64encode(content).decode('ascii'))} | base64 -d"


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Replace a file as a whole, atomically.

    Args:
        path: absolute path.
        content: its bytes; never shown.
        mode: octal as typed (`0644`); empty keeps the present one, 0644 for a new file.
        owner: user; empty keeps the present one, root for a new file.
        group: group; likewise.
        save: keep what was there before the first change; not for keys that must be dead.
    """

    path: str
    content: bytes = field(repr=False)
    mode: str = "0644"
    owner: str = ""
    group: str = ""
    save: bool = True

    @property
    def blob(self) -> Blob | None:
        """The content as a blob when it is too large to go inline."""
        if len(self.content) <= INLINE_LIMIT:
            return None
        return Blob(hashlib.sha256(self.content).hexdigest(), self.content)

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        blob = self.blob
        make, content = _literal(self.content), "/dev/null"
        if blob is not None:
            make, content = "cat <&3", f'"$PROVISION_BLOBS"/{blob.sha256}'
        # dash says nothing when its printf finds no space
        fill = f'{make} >"$n" || provision_no "$p: its content cannot be written"'
        return _replacing(self.path, fill, self.mode, self.owner, self.group, content=content, save=self.save)


@dataclass(frozen=True, slots=True)
class WriteBlob:
    """Replace a file, atomically, by large content that is read on the controller when it is sent.

    Args:
        path: absolute path.
        blob: the content.
        mode: octal as typed.
    """

    path: str
    blob: Blob = field(repr=False)
    mode: str = "0644"

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        content = f'"$PROVISION_BLOBS"/{self.blob.sha256}'
        return _replacing(self.path, 'cat <&3 >"$n"', self.mode, "root", "root", content=content)


def _ownership(owner: str, group: str) -> str:
    return f"{owner}:{group}" if group else owner


def rewritten(path: str, command: str) -> str:
    """Return a fragment that replaces a file, atomically, by what a command makes of it; mode and owner stay.

    Args:
        path: absolute path; a missing file is taken for an empty one and made 0644.
        command: takes the file as its last argument, and writes to its stdout.
    """
    return _replacing(path, f'if [ -e "$b" ]; then s=$b; else s=/dev/null; fi\n{command} "$s" >"$n"')


def _replacing(
    path: str,
    fill: str,
    mode: str = "",
    owner: str = "",
    group: str = "",
    *,
    content: str = "/dev/null",
    save: bool = True,
) -> str:
    """Return a fragment that replaces a file atomically: rename(2) of a synced file in the same file system.

    Args:
        path: absolute path.
        fill: writes the new content to "$n"; the present file is "$b".
        mode: octal; empty keeps the present one, 0644 for a new file.
        owner: user; empty keeps the present one.
        group: likewise.
        content: shell word of a file that `fill` reads from descriptor 3.
        save: keep what was there before the first change.
    """
    lines = [
        '[ ! -L "$b" ] || provision_no "$p is a symbolic link"',
        '[ ! -d "$b" ] || provision_no "$p is a directory"',
        f"provision_stage {temporary_prefix(path)}",
        fill,
    ]
    if not owner or not group:
        lines.append('if [ -e "$b" ]; then chown -h -- "$(stat -c %u:%g -- "$b")" "$n"; fi')
    if owner or group:
        lines.append(f'chown -h -- {quote(_ownership(owner, group))} "$n"')
    kept_mode = 'if [ -e "$b" ]; then m=$(stat -c %a -- "$b"); else m=644; fi; chmod -- "$m" "$n"'
    lines.append(f'chmod -- {quote(mode)} "$n"' if mode else kept_mode)
    task = "\n".join((*lines, 'sync -- "$n" 2>/dev/null || sync', "provision_place"))
    return placed(path, task, owner=owner or KEEP, content=content, save=save)


_AWK = """BEGIN { line = ENVIRON["PROVISION_LINE"] }
$0 == line { done = 1 }
{ print }
END { if (!done) print line }"""


@dataclass(frozen=True, slots=True)
class SetLine:
    """Make a file have a line; works on the file as it is then, so that several lines of one step add up.

    Args:
        path: absolute path; mode and owner stay, a missing file is made 0644.
        line: the line, without its newline.
    """

    path: str
    line: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return rewritten(self.path, f"PROVISION_LINE={quote(self.line)} awk {quote(_AWK)}")


def with_line(content: bytes, line: str) -> bytes:
    """Return a content as SetLine changes it; the same bytes when it has the line."""
    text = content.decode("utf-8", "surrogateescape")
    lines = text.removesuffix("\n").split("\n") if text else []
    if line in lines:
        return content
    return ("\n".join((*lines, line)) + "\n").encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove a file or symbolic link, never a directory; a file that was there before is saved.

    Args:
        path: absolute path.
        save: keep what was there before the first change; not for keys that must be dead.
    """

    path: str
    save: bool = True

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        remove = placed(self.path, 'rm -f -- "$b"', owner=ANY, make=False, save=self.save)
        return f"{remove}\nprovision_forget {saved_name(self.path)}"


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make a directory and its parents (0755).

    Args:
        path: absolute path.
        owner: whose it will be; decides with whose rights it is made in a folder that is not root's.
    """

    path: str
    owner: str = ""

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        task = '[ ! -L "$b" ] || provision_no "$p is a symbolic link"\n( umask 022; mkdir -p -- "$b" )'
        return placed(self.path, task, owner=self.owner or KEEP)


_NOT_THROUGH_LINK = '[ ! -L "$b" ] || provision_no "$p is a symbolic link"'


@dataclass(frozen=True, slots=True)
class SetMode:
    """Change permission bits (octal as typed)."""

    path: str
    mode: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        task = f'{_NOT_THROUGH_LINK}\nchmod -- {quote(self.mode)} "$b"'
        return placed(self.path, task, make=False)


# In their own folder a user gets a file that is not theirs by a copy, and an empty directory by a new one.
_TAKE_OVER = """if [ "$provision_u" = 0 ] || [ -O "$b" ]; then chown -h -- @OWNER@ "$b"
elif [ -f "$b" ]; then
provision_stage @PREFIX@
cat -- "$b" >"$n"
chmod -- "$(stat -c %a -- "$b")" "$n"
chown -h -- @OWNER@ "$n"
provision_place
else
m=$(stat -c %a -- "$b")
rmdir -- "$b"
mkdir -m "$m" -- "$b"
chown -h -- @OWNER@ "$b"
fi"""


@dataclass(frozen=True, slots=True)
class SetOwner:
    """Change owner, group or both (empty leaves it)."""

    path: str
    owner: str = ""
    group: str = ""

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        ownership = quote(_ownership(self.owner, self.group))
        task = _TAKE_OVER.replace("@OWNER@", ownership).replace("@PREFIX@", temporary_prefix(self.path))
        return placed(self.path, f"{_NOT_THROUGH_LINK}\n{task}", owner=self.owner or KEEP, make=False)


@dataclass(frozen=True, slots=True)
class LinkTo:
    """Make a symbolic link, atomically; replaces a file or link."""

    path: str
    target: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        target, missing = quote(self.target), quote(f"{self.target} does not exist")
        task = (
            f"if [ ! -e {target} ]; then printf '%s\\n' {missing} >&2; exit 1; fi\n"
            f"provision_stage {temporary_prefix(self.path)}\n"
            f'ln -s -- {target} "$n"\n'
            "provision_place"
        )
        return placed(self.path, task)


# apt-get also removes what depends on a package, and -y answers its question: its plan is read first.
_MORE = """BEGIN { n = split(ENVIRON["PROVISION_NAMES"], a, " "); for (i = 1; i <= n; i++) named[a[i]] = 1 }
($1 == "Remv" || $1 == "Purg") && !($2 in named) { printf "%s%s", sep, $2; sep = ", " }"""


@dataclass(frozen=True, slots=True)
class InstallPackages:
    """Install packages by apt if no other must be removed for it; lists are fetched when the first try fails.

    Args:
        names: package names.
    """

    names: tuple[str, ...]

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"{apt_locks.SHELL}provision_install {words(self.names)}"


@dataclass(frozen=True, slots=True)
class RemovePackages:
    """Remove packages by apt, and nothing besides; configuration files stay."""

    names: tuple[str, ...]

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        names, (before, after) = words(self.names), map(quote, self.refusal)
        more = f"PROVISION_NAMES={quote(' '.join(self.names))} awk {quote(_MORE)}"
        return (
            f"{apt_locks.SHELL}provision_configure\n"
            f"plan=$(apt-get {apt_locks.OPTIONS} -s remove -- {names})\n"
            f"more=$(printf '%s\\n' \"$plan\" | {more})\n"
            f'if [ -n "$more" ]; then printf \'%s%s%s\\n\' {before} "$more" {after} >&2; exit 1; fi\n'
            f"provision_apt apt-get {apt_locks.OPTIONS} remove -- {names}"
        )

    @property
    def refusal(self) -> tuple[str, str]:
        """The message before and after the names of other packages that apt would remove."""
        return (
            f"refused: removing {', '.join(self.names)} would also remove ",
            "; declare these absent first",
        )


@dataclass(frozen=True, slots=True)
class HoldPackages:
    """Keep packages from being upgraded, or no longer."""

    names: tuple[str, ...]
    hold: bool = True

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        verb = "hold" if self.hold else "unhold"
        return f"{apt_locks.SHELL}provision_apt apt-mark {verb} -- {words(self.names)}"


@dataclass(frozen=True, slots=True)
class SetUnit:
    """Start, stop, enable, disable or unmask one systemd unit.

    Args:
        name: full unit name.
        verb: the systemctl verb.
        waits: whether it waits until the unit has started or stopped; otherwise the job is only queued.
    """

    name: str
    verb: str
    waits: bool = True

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"systemctl {'' if self.waits else '--no-block '}{self.verb} -- {quote(self.name)}"


@dataclass(frozen=True, slots=True)
class SetSysctl:
    """Set a live kernel parameter.

    Args:
        key: dotted name; a slash means a dot inside a part.
        value: its value.
    """

    key: str
    value: str

    @property
    def file(self) -> str:
        """Its file below /proc/sys."""
        return sysctl_file(self.key)

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"printf '%s\\n' {quote(self.value)} >{quote(self.file)}"


def sysctl_file(key: str) -> str:
    """Return the file of a kernel parameter; see sysctl(8) on slashes and dots in names."""
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))


@dataclass(frozen=True, slots=True)
class LoadModule:
    """Load a kernel module."""

    name: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"modprobe -- {quote(self.name)}"


@dataclass(frozen=True, slots=True)
class SetHostname:
    """Set the live host name.

    By hostname(1), which every Debian has: a container may name itself, but its /proc/sys is read-only.
    """

    name: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"hostname {quote(self.name)}"


@dataclass(frozen=True, slots=True)
class SwapOff:
    """Switch all swap off now."""

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return "swapoff -a"


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a command of the inventory.

    Args:
        text: POSIX shell text.
        creates: file that it makes, where that is its guard.
        satisfies: probe that ends with 0 afterwards, where that is its guard.
    """

    text: str
    creates: str = ""
    satisfies: str = ""

    def shell(self) -> str:
        """Return it as a POSIX fragment with the ordinary umask; a missing quote ends nothing but it."""
        return f"( umask 022\neval {quote(self.text)}\n)"


def fix(
    ops: Iterable[Operation],
    effects: Iterable[Effect] = (),
    *,
    secrets: Iterable[SecretStr] = (),
    timeout: float = 300.0,
) -> Fix:
    """Return the fix that does these operations in order.

    Args:
        ops: what to do; none when only effects are pending.
        effects: what must happen after it.
        secrets: values to mask in output.
        timeout: seconds.
    """
    operations = tuple(ops)
    blobs = [operation.blob for operation in operations if isinstance(operation, WriteFile | WriteBlob)]
    return Fix(
        script=deduplicated("\n".join(operation.shell() for operation in operations), apt_locks.SHELL) or ":",
        effects=tuple(dict.fromkeys(effects)),
        blobs=tuple(blob for blob in blobs if blob is not None),
        secrets=tuple(secrets),
        timeout=timeout,
        ops=operations,
    )
