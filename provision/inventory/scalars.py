"""Scalars of an inventory: a string field shows what was typed, other fields follow YAML 1.2 core."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from provision.inventory.core_values import Scalar, core_value, to_int, typed_value
from provision.inventory.kernel_line import argument_problem
from provision.values.fingerprints import HOST_KEY
from provision.values.sizes import Rate, parse_percent, parse_rate, parse_size

T = TypeVar("T")
_LONGEST = 1024


def wrong(message: str) -> NoReturn:
    """Raise the error that a validator gives to pydantic."""
    raise PydanticCustomError("inventory_value", "{message}", {"message": message})


def shape_of(value: Any) -> str:
    """Return the words for what stands in the file instead."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return f"{str(value)[:60]!r}"


class Check:
    """How a field is validated and described: one call, and far quicker to build than pydantic's own.

    Args:
        function: from what stands in the file to the field's value.
        schema: its JSON Schema.
    """

    def __init__(self, function: Callable[[Any], Any], schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)
        self._core = core_schema.no_info_plain_validator_function(function)

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return self._core

    def __get_pydantic_json_schema__(
        self, _core: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.schema)


def text(value: Any) -> str:
    """Return a scalar as it was typed."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    wrong(f"expected text, found {shape_of(value)}")


_NEAR_FLAGS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def flag(value: Any) -> bool:
    """Return a boolean: only true and false are (YAML 1.2 core)."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Scalar) and value.core == "bool":
        return value.lower() == "true"
    if isinstance(value, str):
        plain = value.lower()
        near = plain if plain in {"true", "false"} else _NEAR_FLAGS.get(plain)
        hint = f": did you mean {near}?" if near else ""
        wrong(f"expected true or false, found {shape_of(value)}{hint}")
    wrong(f"expected true or false, found {shape_of(value)}")


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Return a validator for whole numbers from `low` to `high`."""

    def check(value: Any) -> int:
        if isinstance(value, Scalar) and value.core == "int":
            if len(value) > 20:  # noqa: PLR2004 - longer than any 64-bit number
                wrong(f"expected a number from {low} to {high}")
            number = to_int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        else:
            hint = f": did you mean {value!s} without quotes?" if _is_digits(value) else ""
            wrong(f"expected a whole number, found {shape_of(value)}{hint}")
        if not low <= number <= high:
            wrong(f"expected a number from {low} to {high}, found {number}")
        return number

    return check


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) < 20 and value.isascii() and value.isdigit()  # noqa: PLR2004 - as above


def pattern(expression: str, words: str) -> Callable[[Any], str]:
    """Return a validator for text that matches `expression` as a whole."""
    match = re.compile(expression).fullmatch

    def check(value: Any) -> str:
        word = text(value)
        if len(word) > _LONGEST or match(word) is None:
            wrong(f"{word[:80]!r} is not a valid {words}")
        return word

    return check


def or_template(expression: str, words: str) -> Callable[[Any], str]:
    """Return a validator for text that matches `expression`, or holds a `{{ name }}` in one line."""
    named = pattern(expression, words)

    def check(value: Any) -> str:
        word = text(value)
        start = word.find("{{")
        if (
            start >= 0
            and word.find("}}", start) >= 0
            and len(word) <= _LONGEST
            and not {"\n", "\0"} & set(word)
        ):
            return word
        return named(word)

    return check


def converted(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Return a validator from a parser that raises ValueError; values already parsed pass."""

    def check(value: Any) -> T:
        if not isinstance(value, str):
            text(value)
        try:
            return parse(text(value))
        except ValueError as error:
            wrong(str(error))

    return check


def _refuse_ipv6(value: str) -> None:
    """Raise ValueError for IPv6, also in a list: half of a dual stack would be lost."""
    for part in value.split(","):
        try:
            ipaddress.IPv6Interface(part.strip())
        except ValueError:
            continue
        raise ValueError(f"{value[:60]!r} has IPv6, which is unsupported: nodes and clusters are IPv4 only")


@lru_cache(maxsize=4096)
def address_of(value: str) -> ipaddress.IPv4Address:
    """Return an IPv4 address.

    Raises:
        ValueError: it is none.
    """
    try:
        return ipaddress.IPv4Address(value)
    except ValueError:
        _refuse_ipv6(value)
        alone, slash, _ = value.partition("/")
        hint = f": did you mean {alone}?" if slash and not alone.endswith(".") else ""
        raise ValueError(f"{value[:60]!r} is not an IPv4 address{hint[:80]}") from None


def _address(value: str) -> str:
    address = address_of(value)
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        raise ValueError(f"{value!r} is not the address of a host")
    return str(address)


def _network(value: str) -> str:
    try:
        return str(ipaddress.IPv4Network(value))
    except ValueError as error:
        if "host bits" in str(error):
            near = ipaddress.IPv4Network(value, strict=False)
            raise ValueError(f"{value!r} has host bits set: did you mean {near}?") from None
        _refuse_ipv6(value)
        raise ValueError(f"{value[:60]!r} is not an IPv4 network like 192.168.100.0/24") from None


def _interface(value: str) -> str:
    try:
        interface = str(ipaddress.IPv4Interface(value)) if "/" in value else ""
    except ValueError:
        interface = ""
    if not interface:
        _refuse_ipv6(value)
        raise ValueError(f"{value[:60]!r} is not an address with a prefix like 10.224.7.143/12")
    return interface


def _range(value: str) -> str:
    first, dash, last = value.partition("-")
    try:
        low, high = address_of(first.strip()), address_of(last.strip())
    except ValueError:
        dash = ""
        low = high = ipaddress.IPv4Address(0)
    if not dash or low > high:
        raise ValueError(f"{value[:60]!r} is not an address range like 192.168.100.2-192.168.100.254")
    return f"{low}-{high}"


def _pci_address(value: str) -> str:
    # lspci leaves the domain out, nvidia-smi writes it with eight digits and capitals
    match = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?", value.lower())
    if match is None:
        raise ValueError(f"{value[:60]!r} is not a PCI address with a domain like 0000:02:00")
    slot = f"{int(match[1] or '0', 16):04x}:{match[2]}"
    if match[3] is not None:
        alone = f"functions: [{match[3][1]}]"
        raise ValueError(f"{value!r} is one function: did you mean {slot}? For it alone add `{alone}`")
    if value != slot:
        raise ValueError(f"{value!r} is not a PCI address as the kernel writes it: did you mean {slot}?")
    return value


def _pci_id(value: str) -> str:
    if re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}", value) is None:
        raise ValueError(f"{value[:60]!r} is not a PCI vendor and device id like 10de:2204")
    return value.lower()


def _usb_port(value: str) -> str:
    if re.fullmatch(r"\d+-\d+(\.\d+)*", value) is None:
        raise ValueError(f"{value[:60]!r} is not a USB port like 1-2 or 1-2.4")
    return value


def _usb_id(value: str) -> str:
    if re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}", value) is None:
        raise ValueError(f"{value[:60]!r} is not a USB vendor and device id like 0403:6001")
    return value.lower()


def _mac(value: str) -> str:
    if re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", value) is None:
        raise ValueError(f"{value[:60]!r} is not a MAC address like BC:24:11:00:00:01")
    if int(value[:2], 16) & 1:
        raise ValueError(f"{value!r} is a group address: the first byte of a device's MAC is even")
    return value.upper()


@lru_cache(maxsize=1024)
def _path_of(folder: str, text: str) -> Path:
    if not text or "\0" in text:
        wrong("expected a file name")
    path = Path(text)
    if text.startswith("~"):
        try:
            return path.expanduser()
        except RuntimeError:
            wrong(f"{text[:80]!r}: this home folder does not exist")
    return Path(folder) / path if folder and not path.is_absolute() else path


def _local_path(value: Any) -> Path:
    if isinstance(value, Path):
        return value
    return _path_of(getattr(value, "folder", ""), text(value))


PLACEHOLDER = re.compile(r"<[^<>]{1,60}>|(?:[0-9A-Fa-f]{2}:)*\.\.\.|SHA256:(?:\.\.\.|<[^<>]{1,60}>)")
"""What stands for a value that `provision pin`, `image pin` or `bootstrap` will write."""


def _or_placeholder(expression: str, words: str, case: Callable[[str], str]) -> Callable[[Any], str]:
    match = re.compile(expression).fullmatch

    def check(value: Any) -> str:
        word = text(value)
        if PLACEHOLDER.fullmatch(word) is not None:
            return word
        if match(word) is None:
            wrong(f"{word[:100]!r} is not a valid {words}")
        return case(word)

    return check


_LABEL = r"(?!-)[a-z0-9-]{1,63}(?<!-)"
_TEXT = {"type": ["string", "number", "boolean"]}
_WORD = {"type": "string"}


def near(word: str, known: Any) -> str:
    """Return `: did you mean X?` for the nearest known word, or nothing."""
    from provision.values.suggestions import nearest  # noqa: PLC0415 - only needed when something is wrong

    closest = nearest(word, known)
    return f": did you mean {closest}?" if closest else ""


Text = Annotated[str, Check(text, _TEXT)]
Word = Annotated[
    str,
    Check(or_template(r"(?!-)[^\s\x00-\x1f\x7f]+", "name without spaces"), _WORD),
]
"""A name that goes to commands of hosts: no spaces, no dash at its start; or a template."""


def _kernel_argument(value: Any) -> str:
    argument = text(value)
    problem = argument_problem(argument)
    if problem is not None:
        wrong(f"{argument[:100]!r} is not a kernel argument: {problem}")
    return argument


KernelArgument = Annotated[str, Check(_kernel_argument, _WORD)]

Flag = Annotated[bool, Check(flag, {"type": "boolean"})]
Label = Annotated[
    str,
    Check(
        pattern(_LABEL, "DNS label (lower-case letters, digits and dashes, at most 63)"),
        {"type": "string", "pattern": f"^{_LABEL}$"},
    ),
]
_host_name = pattern(rf"{_LABEL}(?:\.{_LABEL})*", "host name (DNS labels joined by dots)")


def _host(value: str) -> str:
    _refuse_ipv6(value.strip("[]"))
    return _host_name(value)


HostName = Annotated[str, Check(converted(_host), _WORD)]
_PVE_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
PveName = Annotated[
    str,
    Check(
        pattern(
            rf"{_PVE_LABEL}(?:\.{_PVE_LABEL})*",
            "name in Proxmox VE (letters, digits and dashes; dots between labels)",
        ),
        {"type": "string", "pattern": f"^{_PVE_LABEL}(\\.{_PVE_LABEL})*$"},
    ),
]
"""A node or VM as Proxmox VE spells it: its API paths are case-sensitive."""
Address = Annotated[str, Check(converted(_address), {"type": "string", "format": "ipv4"})]
Network4 = Annotated[str, Check(converted(_network), _WORD)]
Interface4 = Annotated[str, Check(converted(_interface), _WORD)]
AddressRange = Annotated[str, Check(converted(_range), _WORD)]
Mac = Annotated[str, Check(converted(_mac), _WORD)]
Port = Annotated[int, Check(whole(1, 65535), {"type": "integer"})]
Count = Annotated[int, Check(whole(1, 100000), {"type": "integer", "minimum": 1})]
Whole = Annotated[int, Check(whole(-(2**31), 2**31), {"type": "integer"})]
Seconds = Annotated[int, Check(whole(0, 604800), {"type": "integer", "minimum": 0})]
VmId = Annotated[
    int,
    Check(whole(100, 999999999), {"type": "integer", "minimum": 100, "maximum": 999999999}),
]


def _version(value: Any) -> int:
    if str(value) != "1":
        wrong(f"{str(value)[:60]!r} is not a known version: write 1")
    return 1


SchemaVersion = Annotated[int, Check(_version, {"const": 1})]


def _mib(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_size(text(value))
    except ValueError as error:
        wrong(str(error))


def _positive_mib(value: Any) -> int:
    size = _mib(value)
    if size < 1:
        wrong("expected a size above zero")
    return size


_SIZE_SCHEMA = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(MiB|GiB|TiB)$", "examples": ["60GiB"]}
Mebibytes = Annotated[int, Check(_positive_mib, _SIZE_SCHEMA)]
"""A size in MiB, written with its unit."""

Share = Annotated[float, Check(converted(parse_percent), _WORD)]
"""A fraction from 0 to 1, written as a percentage."""

DataRate = Annotated[Rate, Check(converted(parse_rate), _WORD)]
LocalPath = Annotated[Path, Check(_local_path, _WORD)]
"""A file of the controller: `~` is a home folder, relative ones start at the inventory's folder."""

TARGET_PATH = r"(?:/(?!\.{1,2}(?:/|$))[^\x00-\x1f\x7f\\/]{1,255})+"
"""A plain absolute path: each part is a name that a filesystem can hold."""
TargetPath = Annotated[
    str,
    Check(
        or_template(TARGET_PATH, "absolute path on the host, without `.`, `..`, `//` or a slash at its end"),
        _WORD,
    ),
]
Mode = Annotated[
    str,
    Check(pattern(r"0?[0-7]{3,4}", "file mode in octal like 0644"), _WORD),
]
PciFunctionNumber = Annotated[int, Check(whole(0, 7), {"type": "integer", "minimum": 0, "maximum": 7})]
PciAddress = Annotated[str, Check(converted(_pci_address), _WORD)]
PciId = Annotated[
    str,
    Check(converted(_pci_id), _WORD),
]
UsbPort = Annotated[str, Check(converted(_usb_port), _WORD)]
UsbId = Annotated[str, Check(converted(_usb_id), _WORD)]
Sha256 = Annotated[
    str,
    Check(_or_placeholder(r"[0-9a-fA-F]{64}", "SHA-256 digest (64 hex digits)", str.lower), _WORD),
]
CertificateFingerprint = Annotated[
    str,
    Check(
        _or_placeholder(
            r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){31}",
            "SHA-256 fingerprint of a certificate (32 bytes in hex, joined by colons)",
            str.upper,
        ),
        _WORD,
    ),
]
HostKey = Annotated[
    str,
    Check(
        _or_placeholder(HOST_KEY, "host key fingerprint like ssh-keygen -l prints it", str),
        _WORD,
    ),
]
Values = Annotated[
    dict[str, Any],
    Check(lambda value: _mapping(core_value(value)), {"type": "object"}),
]
"""A free mapping that goes on as it is (chart values, k3s configuration): YAML 1.2 core types."""

Vars = Annotated[
    dict[str, Any],
    Check(lambda value: _mapping(typed_value(value)), {"type": "object"}),
]
"""A free mapping for templates: numbers print as they were typed."""


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        wrong(f"expected a mapping, found {shape_of(value)}")
    return value
