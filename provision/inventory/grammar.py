"""Names as their targets spell them: a grammar for each kind, so that no value gets another meaning there.

A comma or an equals sign ends a value in a property string of Proxmox VE, a line break ends a line of a file,
a dash begins an option, a slash or `..` leads elsewhere. Each kind follows what its target itself accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from provision.inventory.scalars import (
    PLACEHOLDER,
    TARGET_PATH,
    Check,
    converted,
    or_template,
    pattern,
    text,
    wrong,
)
from provision.values.image_reference import IMAGE

_WORD = {"type": "string"}

USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?"
"""A login or group as useradd(8) of Debian and Ubuntu takes it."""

SYSCTL_KEY = r"[A-Za-z0-9_-]+(?:\.(?:[A-Za-z0-9_@-]|[A-Za-z0-9_@-](?:[A-Za-z0-9_@-]|/(?!/))*[A-Za-z0-9_@-]))+"
"""A kernel parameter's dotted name: no part is empty, and none begins or ends with a slash."""


def _kind(expression: str, words: str) -> Check:
    return Check(pattern(expression, words), _WORD)


def _or_template(expression: str, words: str) -> Check:
    return Check(or_template(expression, words), _WORD)


def line(value: Any) -> str:
    """Return a text without line breaks and other control characters; a tab is allowed."""
    word = text(value)
    if any(ord(character) < 32 and character != "\t" for character in word) or "\x7f" in word:  # noqa: PLR2004 - as in ASCII: blanks
        wrong("expected one line without control characters")
    return word


def several_lines(value: Any) -> str:
    """Return a text without NUL, which no shell can hold."""
    word = text(value)
    if "\0" in word:
        wrong("this text contains a NUL character, which a shell cannot hold")
    return word


def checked_url(value: str) -> SplitResult:
    """Return the parts of an http or https URL without a login in it.

    Raises:
        ValueError: it is none.
    """
    words = f"{value[:80]!r} is not a valid http or https URL"
    if re.fullmatch(r"https?://[!-.0-?A-~]+(?:/[!-~]*)?", value) is None or len(value) > 2048:  # noqa: PLR2004 - usual limit
        raise ValueError(f"{words} without a login in it")
    try:
        parts = urlsplit(value)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise ValueError(f"{words}: {error}") from None
    if port == 0:
        raise ValueError(f"{words}: a port is a number from 1 to 65535")
    if ":" not in host and re.fullmatch(_DNS_NAME, host) is None:
        raise ValueError(f"{words}: {host[:60]!r} is not the name or address of a host")
    return parts


def _url(value: str) -> str:
    checked_url(value)
    return value


_DNS_NAME = r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
_HOP = rf"(?:{USER}@)?(?:{_DNS_NAME.replace('(?=.{1,253}$)', '')}|\[[0-9A-Fa-f:.]+\])(?::([0-9]{{1,5}}))?"


def _jump(value: str) -> str:
    for hop in value.split(","):
        match = re.fullmatch(_HOP, hop.strip())
        if match is None or (match[1] is not None and not 1 <= int(match[1]) <= 65535):  # noqa: PLR2004 - ports
            raise ValueError(f"{hop[:80]!r} is not a jump host like user@host:port")
    return value


def _token_id(expression: str) -> Callable[[Any], str]:
    match = re.compile(expression).fullmatch

    def check(value: Any) -> str:
        word = text(value)
        if PLACEHOLDER.search(word) is None and (match(word) is None or len(word) > 200):  # noqa: PLR2004 - PVE: 64 each
            wrong(f"{word[:80]!r} is not the name of an API token like provision@pve!name")
        return word

    return check


Line = Annotated[str, Check(line, {"type": ["string", "number", "boolean"]})]
"""One line of text."""

ShellText = Annotated[str, Check(several_lines, _WORD)]
"""Text for a shell; it may have several lines."""

Url = Annotated[str, Check(converted(_url), _WORD)]
Jump = Annotated[str, Check(converted(_jump), _WORD)]
TokenId = Annotated[
    str,
    Check(
        _token_id(r"[^\s:/@!,\x00-\x20\x7f-\U0010ffff]+@[A-Za-z][A-Za-z0-9._-]*![A-Za-z][A-Za-z0-9._-]*"),
        _WORD,
    ),
]
Storage = Annotated[
    str, _kind(r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", "storage name (letters, digits, dots, dashes)")
]
Bridge = Annotated[
    str, _kind(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,14})", "name of a bridge (at most 15 characters)")
]
Pool = Annotated[
    str,
    _kind(r"(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,2}", "name of a pool"),
]
MACHINE_TYPE = r"i440fx|q35|pc-(?:i440fx|q35)-[0-9]{1,3}\.[0-9]{1,3}(?:\+pve[0-9]{1,3})?"
MachineType = Annotated[
    str,
    _kind(
        MACHINE_TYPE,
        "machine type: i440fx, q35, or one with its version like pc-q35-10.1",
    ),
]
CPU_TYPE = r"[A-Za-z0-9][A-Za-z0-9._-]*"
CpuType = Annotated[str, _kind(CPU_TYPE, "CPU type like host or x86-64-v3")]
CPU_FLAG = r"[+-][A-Za-z0-9][A-Za-z0-9._-]*"
CpuFlag = Annotated[str, _kind(CPU_FLAG, "CPU flag like +aes or -pcid")]
DISK_SLOT = r"scsi(?:[12]?[0-9]|30)|virtio(?:[0-9]|1[0-5])|sata[0-5]|ide[0-3]"
"""Where a VM may have a disk (qemu-server, `PVE/QemuServer/Drive.pm`)."""
DiskSlot = Annotated[str, _kind(DISK_SLOT, "place of a disk like scsi1, virtio0, sata0 or ide1")]
ImageFile = Annotated[str, _kind(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", "file name (letters, digits, . _ -)")]
ImageName = Annotated[str, _kind(IMAGE, "container image like registry.example/tool:1.0")]
TimeZone = Annotated[
    str, _kind(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9][A-Za-z0-9_+-]*){0,2}", "time zone like Europe/Berlin")
]
Login = Annotated[str, _kind(USER, "user name")]
Server = Annotated[str, _kind(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)|[0-9A-Fa-f:]{2,45}", "host name or address")]
SysctlKey = Annotated[str, _kind(SYSCTL_KEY, "name of a kernel parameter like vm.swappiness")]
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9+._:-]{0,254}(?<!-)"
"""A package; apt-get(8) takes a dash at the end of a name as its removal."""
Package = Annotated[str, _kind(PACKAGE, "package name")]
Module = Annotated[str, _kind(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", "kernel module name")]
OwnerName = Annotated[str, _kind(rf"{USER}|[0-9]{{1,10}}", "user or group name, or number")]
PackageName = Annotated[str, _or_template(PACKAGE, "package name")]
FilePath = Annotated[
    str,
    _or_template(
        rf"(?!/(?:dev|proc|sys|var/lib/provision)(?:/|$)){TARGET_PATH}",
        "absolute path of a file (plain, and not below /dev, /proc, /sys or /var/lib/provision)",
    ),
]
UnitName = Annotated[str, _or_template(r"(?!-)[A-Za-z0-9:_.@\\-]{1,255}", "name of a systemd unit")]
ModuleName = Annotated[str, _or_template(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", "kernel module name")]
ParameterName = Annotated[str, _or_template(SYSCTL_KEY, "name of a kernel parameter like vm.swappiness")]
