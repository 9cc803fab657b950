"""Parameter checks with the texts of Proxmox VE's JSON schema validator.

Source of the texts: errors measured on 9.2.11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from provision.lab.api.errors import VERIFICATION_FAILED, ApiError

Value = str | int | list[str]

UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
MISSING = "property is missing and it is not optional"


class FormatError(Exception):
    """A property string that cannot be taken apart, or a value of a wrong form."""


@dataclass(frozen=True, slots=True)
class Field:
    """What one parameter may be.

    Args:
        kind: string, integer, number, boolean or array (of strings).
        required: must be given.
        minimum: smallest integer.
        maximum: largest integer.
        choices: the only values.
        pattern: regular expression of the whole value.
        max_length: in characters.
        check: raises FormatError for values of a wrong form.
        parts: sub-properties, for a property string.
        default_part: the sub-property of a bare value.
        aliases: key of a property string -> (sub-property it sets to the key, sub-property of its value).
        requires: another parameter that must be there too.
    """

    kind: str = "string"
    required: bool = False
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    max_length: int | None = None
    check: Callable[[str], None] | None = None
    parts: Mapping[str, Field] = field(default_factory=dict)
    default_part: str | None = None
    aliases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    requires: str | None = None


def parse_parts(spec: Field, text: str) -> dict[str, str]:
    """Take a property string apart.

    Raises:
        FormatError: unknown or doubled key, or a bare value without a default key.
    """
    result: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals and key in spec.aliases:
            result[spec.aliases[key][0]] = key
            continue
        if not equals:
            if spec.default_part is None:
                raise FormatError("value without key, but schema does not define a default key")
            key, value = spec.default_part, part
        if key in result:
            raise FormatError(f"duplicate key in comma-separated list property: {key}")
        if key in spec.aliases:
            set_key, value_key = spec.aliases[key]
            result[set_key] = key
            result[value_key] = value
        elif key in spec.parts:
            result[key] = value
        else:
            raise FormatError(f"invalid key in comma-separated list property: {key}")
    return result


def print_parts(values: Mapping[str, str], first: str, *, keyless: bool = True) -> str:
    """Print a property string as Proxmox VE does: one part first, the rest by name."""
    head = values[first] if keyless else f"{first}={values[first]}"
    return ",".join([head, *(f"{key}={values[key]}" for key in sorted(values) if key != first)])


def _part_problems(spec: Field, name: str, text: str) -> Iterator[str]:
    values = parse_parts(spec, text)
    for key, part in spec.parts.items():
        if key not in values and part.required:
            yield f"{name}.{key}: {MISSING}\n"
        part_problem = problem(part, key, values[key]) if key in values else None
        if part_problem is not None:
            yield f"{name}.{key}: {part_problem}\n"


def _number_problem(spec: Field, text: str) -> str | None:
    form = r"[+-]?\d+" if spec.kind == "integer" else r"[+-]?\d+(\.\d*)?"
    if not re.fullmatch(form, text):
        return f"type check ('{spec.kind}') failed - got '{text}'"
    if spec.minimum is not None and float(text) < spec.minimum:
        return f"value must have a minimum value of {spec.minimum}"
    if spec.maximum is not None and float(text) > spec.maximum:
        return f"value must have a maximum value of {spec.maximum}"
    return None


def _format_problem(spec: Field, name: str, text: str) -> str | None:
    try:
        if spec.check is not None:
            spec.check(text)
        if spec.parts:
            part_problems = "".join(_part_problems(spec, name, text))
            return f"invalid format - format error\n{part_problems}" if part_problems else None
    except FormatError as error:
        return f"invalid format - {error}\n"
    return None


def problem(spec: Field, name: str, text: str) -> str | None:
    """Say what is wrong with a value, or None."""
    if spec.kind == "boolean":
        return None if text in {"0", "1"} else f"type check ('boolean') failed - got '{text}'"
    if spec.kind in {"integer", "number"}:
        return _number_problem(spec, text) or _format_problem(spec, name, text)
    if spec.choices and text not in spec.choices:
        return f"value '{text}' does not have a value in the enumeration '{', '.join(spec.choices)}'"
    if spec.pattern and not re.fullmatch(spec.pattern, text):
        return "value does not match the regex pattern"
    if spec.max_length is not None and len(text) > spec.max_length:
        return f"value may only be {spec.max_length} characters long"
    return _format_problem(spec, name, text)


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of one method.

    Args:
        fields: by name.
        numbered: by name without its number -> (how many, field).
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    numbered: Mapping[str, tuple[int, Field]] = field(default_factory=dict)

    def find(self, name: str) -> Field | None:
        """Return the field of a parameter, or None for an unknown one."""
        if name in self.fields:
            return self.fields[name]
        match = re.fullmatch(r"([a-z]+)(0|[1-9]\d*)", name)
        if match and match[1] in self.numbered:
            count, spec = self.numbered[match[1]]
            return spec if int(match[2]) < count else None
        return None


def _convert(spec: Field, values: list[str]) -> Value:
    if spec.kind == "array":
        return values
    if spec.kind in {"integer", "boolean"}:
        return int(values[-1])
    return values[-1]


def validate(params: Params, given: Mapping[str, list[str]]) -> dict[str, Value]:
    """Check all parameters of a request, all problems at once.

    Raises:
        ApiError: 400 with one text a parameter.
    """
    errors: dict[str, str] = {}
    result: dict[str, Value] = {}
    for name, values in given.items():
        spec = params.find(name)
        if spec is None:
            errors[name] = UNKNOWN
            continue
        labels = [f"{name}[{index}]" if spec.kind == "array" else name for index in range(len(values))]
        problems = {label: problem(spec, label, text) for label, text in zip(labels, values, strict=True)}
        wrong = {label: text for label, text in problems.items() if text is not None}
        if wrong:
            errors |= dict([next(iter(wrong.items()))])
            continue
        if spec.requires is not None and spec.requires not in given:
            errors[spec.requires] = f"missing property required by '{name}'"
        result[name] = _convert(spec, values)
    for name, spec in params.fields.items():
        if spec.required and name not in given:
            errors.setdefault(name, MISSING)
    if errors:
        raise ApiError(400, VERIFICATION_FAILED, errors)
    return result
