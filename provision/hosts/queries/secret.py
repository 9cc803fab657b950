"""Queries whose answers are secrets: values that a host made itself, or that the engine keeps there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import SecretStr

from provision.contracts.query import Frame, Unknown
from provision.hosts.queries.file import FileText, FileTextKind


@dataclass(frozen=True, slots=True)
class SecretText:
    """A secret in a small file, without white space around it; None when the file is absent or empty."""

    kind: ClassVar[str] = "secret-text"
    secret: ClassVar[bool] = True
    path: str


class SecretTextKind:
    """All secrets in one fragment, as other texts; what comes back stands on no command line."""

    query: type[Any] = SecretText

    def script(self, queries: Sequence[Any]) -> str:
        """Return the fragment."""
        return FileTextKind().script([FileText(query.path) for query in queries])

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        """Return SecretStr, None or Unknown for each path."""
        texts = FileTextKind().parse(frame, [FileText(query.path) for query in queries])
        return {query: self.value(query.path, texts[FileText(query.path)]) for query in queries}

    def value(self, path: str, content: object) -> object:
        """Return the answer for what a file holds."""
        return secret_of(path, content)


def secret_of(path: str, content: object) -> SecretStr | Unknown | None:
    """Return the secret in what a file holds; the reason of an Unknown repeats nothing of it."""
    if content is None or isinstance(content, Unknown):
        return content
    try:
        text = content.decode().strip() if isinstance(content, bytes) else ""
    except UnicodeDecodeError:
        return Unknown(f"{path} is not UTF-8 text")
    return SecretStr(text) if text else None
