"""The page of the inventory, from its models."""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.generators.inventory_examples import examples, unsupported_fields
from docs.generators.reference_text import AFTER, BEFORE, EFFECTS
from provision.api.domains import effect_classes
from provision.api.support import all_untested
from provision.inventory import grammar, scalars
from provision.inventory.docstrings import field_docs
from provision.inventory.models import base
from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node, Profile
from provision.inventory.schema import members
from provision.values.consent import Consent
from provision.values.sizes import format_size

_WORDS = {
    "Text": "text",
    "Word": "name",
    "Flag": "true or false",
    "Label": "DNS label",
    "HostName": "host name",
    "Address": "IPv4 address",
    "Network4": "IPv4 network",
    "Interface4": "address/prefix",
    "AddressRange": "first-last",
    "Mac": "MAC address",
    "Port": "1 to 65535",
    "Count": "number",
    "Whole": "number",
    "Seconds": "seconds",
    "VmId": "100 to 999999999",
    "SchemaVersion": "1",
    "Mebibytes": "size",
    "Share": "percentage",
    "DataRate": "rate",
    "LocalPath": "file on the controller",
    "TargetPath": "path on the host",
    "Mode": "octal mode",
    "PciAddress": "PCI address",
    "PciId": "PCI id",
    "Sha256": "SHA-256",
    "CertificateFingerprint": "fingerprint",
    "HostKey": "SHA256:...",
    "Values": "mapping",
    "Vars": "mapping",
}
_NAMES = {
    "Line": "text",
    "ShellText": "shell text",
    "Url": "URL",
    "Jump": "jump host",
    "TokenId": "user@realm!token",
    "Storage": "storage",
    "Bridge": "bridge",
    "Pool": "pool",
    "CpuType": "CPU type",
    "CpuFlag": "CPU flag",
    "ImageFile": "file name",
    "TimeZone": "time zone",
    "Login": "user",
    "Server": "host name or address",
    "SysctlKey": "kernel parameter",
    "Package": "package",
    "Module": "kernel module",
    "OwnerName": "user or number",
    "PackageName": "package",
    "UnitName": "unit",
    "ModuleName": "kernel module",
    "ParameterName": "kernel parameter",
}


def _checks() -> dict[int, str]:
    found = {}
    for name, words in _WORDS.items():
        found[id(typing.get_args(getattr(scalars, name))[1])] = words
    for name, words in _NAMES.items():
        found[id(typing.get_args(getattr(grammar, name))[1])] = words
    found[id(typing.get_args(base.SecretRef)[1])] = "!secret"
    return found


class _Writer:
    def __init__(self) -> None:
        self.checks = _checks()
        self.lines: list[str] = []
        self.done: dict[type[BaseModel], str] = {}
        self.unsupported = unsupported_fields()

    def section(self, model: type[BaseModel], path: str) -> None:
        if model in self.done:
            return
        self.done[model] = path
        shared = Profile.model_fields if model is Node else {}
        self.lines += [f"### `{path}`" if path else "### The file", "", (model.__doc__ or "").strip(), ""]
        if shared:
            self.lines += ["Besides its own keys, all of `profiles.NAME`.", ""]
        for example in (example for example in examples() if example.section == path):
            self.lines += ["```yaml", example.marked, "```", ""]
        self.lines += ["| key | value | if unset | meaning |", "|---|---|---|---|"]
        docs = field_docs(model)
        below: list[tuple[type[BaseModel], str]] = []
        for name, field in model.model_fields.items():
            if field.exclude or name in shared:
                continue
            words = _cell(self.words(field.annotation, field.metadata))
            mark = self.unsupported.get((model, name), "")
            meaning = f"{docs[name]} *{mark.capitalize()}.*" if mark else docs[name]
            self.lines.append(f"| `{name}` | {words} | {_cell(_default(field))} | {_cell(meaning)} |")
            inner = f"{path}.{name}" if path else name
            below += [(member, inner + _suffix(field.annotation)) for member in members(field.annotation)]
        self.lines.append("")
        for each, inner in below:
            kind = each.model_fields.get("kind")
            is_member = kind is not None and typing.get_origin(kind.annotation) is typing.Literal
            tag = typing.get_args(kind.annotation)[0] if is_member and kind is not None else ""
            self.section(each, f"{inner} (kind: {tag})" if is_member else inner)

    def words(self, annotation: Any, metadata: Any = ()) -> str:
        for each in metadata:
            if isinstance(each, scalars.Check):
                return self.checks.get(id(each)) or _inline(each)
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.words(args[0], args[1:])
        return self.joined(origin, args) if args else self.named(annotation)

    def joined(self, origin: Any, args: tuple[Any, ...]) -> str:
        if origin is typing.Literal:
            return ", ".join(f"`{argument}`" for argument in args)
        words = [self.words(argument) for argument in args if argument not in (types.NoneType, Ellipsis)]
        if origin is dict:
            return f"mapping of {words[0]} to {words[1]}"
        return f"list of {words[0]}" if origin is tuple else " or ".join(dict.fromkeys(words))

    def named(self, annotation: Any) -> str:
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return "effect class"
        if "kind" in annotation.model_fields and annotation.__name__.endswith("Resource"):
            return "resource"
        return f"as `{self.done[annotation]}`" if annotation in self.done else "section"


def _inline(check: scalars.Check) -> str:
    found = check.schema
    return (
        "number" if found.get("type") == "integer" else " or ".join(map(str, found.get("examples", ["text"])))
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if field.default_factory is not None or value in (None, (), PydanticUndefined):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    is_size = any(isinstance(each, scalars.Check) and "GiB" in str(each.schema) for each in field.metadata)
    return f"`{format_size(value)}`" if is_size and isinstance(value, int) else f"`{value}`"


def _suffix(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is dict:
        return ".NAME"
    return "[]" if origin is tuple or "tuple" in str(annotation) else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@cache
def reference_markdown() -> str:
    """Return docs/inventory.md."""
    writer = _Writer()
    writer.section(Inventory, "")
    untested = [f"- {item.what}" for item in all_untested()]
    effects = [
        f"- `{cls}`" + (" (allowed unless listed)" if cls.default_consent is Consent.ALLOW else "")
        for cls in effect_classes().values()
    ]
    return "\n".join(
        [
            BEFORE.strip(),
            "",
            "## Keys",
            "",
            *writer.lines,
            EFFECTS.strip(),
            "",
            *effects,
            "",
            AFTER.strip(),
            "",
            *untested,
            "",
        ]
    )
