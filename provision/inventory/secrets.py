"""Secrets by reference: opened late, never shown, never part of what validate reads."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

from provision.inventory.scalars import shape_of, wrong
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import UsageError
from provision.values.read_file import read_limited
from provision.values.redaction import Redactor

_LIMIT = 1024 * 1024
_COMMAND_SECONDS = 60
_ALONE = "run the command by itself to see its error"


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a secret.

    Args:
        kind: where it comes from.
        reference: variable, absolute file name, or the command's words.
        source: where the reference stands in the inventory.
    """

    kind: Literal["env", "file", "command"]
    reference: tuple[str, ...]
    source: Source | None = None
    _printed: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"!secret {{ {self.kind}: {' '.join(self.reference)} }}"

    __str__ = __repr__

    def open(self, redactor: Redactor) -> SecretStr:
        """Return the secret, without the newline that ends a file or an output; the redactor masks it now.

        Raises:
            UsageError: it cannot be had; carries the position of the reference.
        """
        if self.kind == "env":
            value = os.environ.get(self.reference[0])
            if value is None:
                raise self._error(
                    f"the variable {self.reference[0]} is not set", "set it, and run the command again"
                )
            value = self._decode(os.fsencode(value))
        elif self.kind == "file":
            value = self._read()
        else:
            # A command may ask a person or a vault: it is run once, though plan looks before it begins.
            value = self._printed[0] if self._printed else self._run()
        value = value.removesuffix("\n").removesuffix("\r")
        if not value:
            raise self._error("it is empty", f"write it {self._place()}")
        if self.kind == "command":
            self._printed[:] = [value]
        redactor.add(value)
        return SecretStr(value)

    def _place(self) -> str:
        if self.kind == "env":
            return f"into {self.reference[0]}"
        return f"to {self.reference[0]}" if self.kind == "file" else "to the command's output"

    def _read(self) -> str:
        try:
            data = read_limited(Path(self.reference[0]), _LIMIT)
        except OSError as error:
            remedy = f"correct the name, or write the secret {self._place()}"
            raise self._error(f"{self.reference[0]}: {error.strerror}", remedy) from None
        return self._decode(data)

    def _run(self) -> str:
        try:
            process = subprocess.run(
                self.reference,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"{self.reference[0]} took longer than {_COMMAND_SECONDS} s"
            raise self._error(reason, f"{_ALONE}; it cannot ask anybody") from None
        except (OSError, ValueError):
            raise self._error(f"{self.reference[0]} cannot be run", "correct its name") from None
        if process.returncode:
            raise self._error(f"{self.reference[0]} ended with status {process.returncode}", _ALONE)
        return self._decode(process.stdout)

    def _decode(self, data: bytes) -> str:
        if len(data) > _LIMIT:
            raise self._error("it is larger than 1 MiB", "")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._error("it is not UTF-8 text", "") from None

    def _error(self, reason: str, remedy: str) -> UsageError:
        summary = f"the secret {self!r} cannot be opened: {reason}"
        return UsageError(Diagnostic("SECRET_UNREADABLE", summary, source=self.source, remedy=remedy))


def secret_of(value: Any) -> Secret:
    """Return a secret field's reference; a secret written in plain is refused, and not repeated."""
    if isinstance(value, Secret):
        return value
    if isinstance(value, str):
        raise PydanticCustomError(
            "inventory_secret",
            "a secret is written by reference, like !secret { env: NAME } or !secret { file: NAME }",
        )
    return wrong(f"expected !secret {{ env | file | command }}, found {shape_of(value)}")
