"""How a difference is corrected: on a host, by an API, by a person, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from provision.contracts.effect import Effect
from provision.values.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class Blob:
    """Content too large to go inline (over 64 KiB): sent before the fix, named by its SHA-256.

    The fragment finds it at `$PROVISION_BLOBS/<sha256>`.

    Args:
        sha256: digest in hex.
        data: the content, where it is at hand.
        read: returns the content where it is too large to be held by each plan; called when it is sent.
            What is too large for memory comes as a view of its file; the host compares the digest.
    """

    sha256: str
    data: bytes = field(default=b"", repr=False)
    read: Callable[[], bytes | memoryview] | None = field(default=None, repr=False, compare=False)

    def content(self) -> bytes:
        """Return the content.

        Raises:
            ProvisionError: it cannot be read, or is not what the digest says.
        """
        return bytes(self.view())

    def view(self) -> memoryview:
        """Return the content to be sent piece by piece; a large file stays on its disk.

        Raises:
            ProvisionError: it cannot be read.
        """
        return memoryview(self.data if self.read is None else self.read())


@dataclass(frozen=True, slots=True)
class Fix:
    """How a host is brought to the desired state.

    Args:
        script: POSIX fragment, run under `set -eu` with stdin from /dev/null; `:` for effects alone.
        effects: what must happen after it; its markers are on the target before the fragment begins.
        risks: consents that the fragment itself needs before it may run.
        blobs: large content.
        secrets: values to mask in all output (they may be inside `script`, which is never shown).
        timeout: seconds the fragment may take.
        quiet: seconds it may go without output, 0 for no such limit.
        ops: the operations that `script` was rendered from; ModelHost performs them.
        creates: the subject that it creates or replaces; empty for nearly all fixes.
    """

    script: str = field(repr=False)
    effects: tuple[Effect, ...] = ()
    risks: tuple[Effect, ...] = ()
    blobs: tuple[Blob, ...] = ()
    secrets: tuple[SecretStr, ...] = ()
    timeout: float = 300.0
    quiet: float = 0.0
    ops: tuple[object, ...] = field(default=(), repr=False)
    creates: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One API request.

    Args:
        method: HTTP method.
        path: path with the values of its names.
        data: parameters.
        task: seconds to wait for the task whose identifier it answers; 0 = it answers at once.
        login: account that sends it, where its driver has more than the usual one.
    """

    method: str
    path: str
    data: Mapping[str, object] = field(default_factory=dict)
    task: float = 0.0
    login: str = ""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """How an API is brought to the desired state: requests in order, the first failure ends it.

    `creates` names the subject that it creates or replaces: a new subject needs no consent for its effects.
    """

    requests: tuple[Request, ...]
    effects: tuple[Effect, ...] = ()
    risks: tuple[Effect, ...] = ()
    creates: str = ""


@dataclass(frozen=True, slots=True)
class ByHand:
    """A person must do it: the step waits (exit 5), and these lines are the instructions."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Impossible:
    """A difference that provision cannot or may not correct: the step fails with this diagnostic."""

    diagnostic: Diagnostic


Remedy = Fix | ApiCall | ByHand | Impossible
