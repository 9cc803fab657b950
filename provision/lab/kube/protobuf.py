"""Reads Secrets as clients written in Go send them: in protobuf, which no answer needs.

Source: kubernetes.io (API Concepts, protobuf encoding) and `generated.proto` of k8s.io/api/core/v1 and
k8s.io/apimachinery: the numbers of fields.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\x00"
_WIRE_BYTES, _WIRE_NUMBER = 2, 0
_LAST = 0x80


def secret_json(data: bytes) -> str | None:
    """Return a Secret as JSON text; None where it is something else."""
    try:
        envelope = dict(_fields(data.removeprefix(MAGIC)))
        names = {number: value.decode() for number, value in _fields(envelope[1])}
        if not data.startswith(MAGIC) or names.get(2) != "Secret":
            return None
        secret = list(_fields(envelope[2]))
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "data": {}}
        for number, value in secret:
            if number == 1:
                body["metadata"] = _metadata(value)
            elif number == 2:  # noqa: PLR2004 - data
                key, content = _pair(value)
                body["data"][key.decode()] = base64.b64encode(content).decode()
            elif number == 3:  # noqa: PLR2004 - type
                body["type"] = value.decode()
    except (KeyError, IndexError, UnicodeDecodeError, ValueError):
        return None
    return json.dumps(body)


def _metadata(data: bytes) -> dict[str, Any]:
    names = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}
    metadata: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in names and value:
            metadata[names[number]] = value.decode()
        elif number in {11, 12}:
            key, text = _pair(value)
            metadata.setdefault("labels" if number == 11 else "annotations", {})[key.decode()] = text.decode()  # noqa: PLR2004 - labels
    return metadata


def _pair(data: bytes) -> tuple[bytes, bytes]:
    entry = dict(_fields(data))
    return entry.get(1, b""), entry.get(2, b"")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each field that is text, bytes or a message; numbers are passed over."""
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        if tag & 7 == _WIRE_NUMBER:
            _, place = _number(data, place)
        elif tag & 7 == _WIRE_BYTES:
            length, place = _number(data, place)
            if place + length > len(data):
                raise ValueError("it ends early")
            yield tag >> 3, data[place : place + length]
            place += length
        else:
            raise ValueError("unknown kind of field")


def _number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & ~_LAST) << shift
        shift += 7
        if not byte & _LAST:
            return value, place
