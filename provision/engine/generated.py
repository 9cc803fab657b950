"""Generated values of one run; their homes are on managed systems, here they only live as long as the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from pydantic import SecretStr

from provision.connections.contracts import KeyPair
from provision.contracts.generated import GeneratedValue
from provision.contracts.query import Unknown
from provision.contracts.resource import AnswerId
from provision.contracts.role import NotYet
from provision.engine.questions import Questions
from provision.engine.session import AwayError, Session
from provision.values.diagnostics import Diagnostic
from provision.values.redaction import Redactor


class GeneratedValues:
    """Makes each value once, or reads it back.

    Args:
        make_host_key: makes a key pair.
        learn: gets each secret that is made, so that it is masked everywhere.
    """

    def __init__(
        self, make_host_key: Callable[[], KeyPair], learn: Callable[[SecretStr], None] = lambda _: None
    ) -> None:
        self._make_host_key = make_host_key
        self._learn = learn
        self._made: list[str] = []
        self._keys: dict[str, KeyPair] = {}
        self._declared: Mapping[str, GeneratedValue] = {}
        self._values: dict[str, tuple[SecretStr, SecretStr | None]] = {}
        self._lock = threading.Lock()

    def redactor_of_made(self) -> Redactor:
        """Return what takes out of texts what was made here: two plans must not differ by it."""
        return Redactor(*self._made)

    def host_key(self, purpose: str) -> KeyPair:
        """Return an ed25519 key pair, the same for the same purpose within one run."""
        with self._lock:
            if purpose not in self._keys:
                key = self._keys[purpose] = self._make_host_key()
                self._learn(key.private)
                self._made += [key.private.get_secret_value(), *key.public.split()[1:2], key.fingerprint]
            return self._keys[purpose]

    # ------------------------------------------------------------ values with homes

    def bind(self, session: Session, declared: Iterable[GeneratedValue], rotate: frozenset[str]) -> None:
        """Take the values that the roles of this run declare, and those of which a new one is asked for."""
        self._session = session
        self._declared = {value.name: value for value in declared}
        self._rotate = rotate

    def questions(self, names: Collection[str] | None = None) -> Questions:
        """Return what is asked for the values, or for some of them."""
        values = (value for value in self._declared.values() if names is None or value.name in names)
        places = (place for value in values for place in (*value.homes, *value.upcoming))
        return Questions(*({system: [query]} for system, query in places))

    def value(self, name: str) -> SecretStr:
        """Return a value: the new one while a rotation goes on.

        Raises:
            NotYet: no home has it, and one of them gives no answer.
        """
        return self._resolved(name)[0]

    def former(self, name: str) -> SecretStr | None:
        """Return the value that a rotation replaces, as long as a home still has it."""
        return self._resolved(name)[1]

    def rotating(self) -> list[GeneratedValue]:
        """Return the values of which a rotation goes on, or begins."""
        return [
            value
            for value in self._declared.values()
            if self.holders(value) or (value.name in self._rotate and self._first(value.homes) is not None)
        ]

    def holders(self, value: GeneratedValue) -> list[str]:
        """Return the systems that keep the new value of a rotation already."""
        return [
            system for system, query in value.upcoming if isinstance(self._answer(system, query), SecretStr)
        ]

    def _resolved(self, name: str) -> tuple[SecretStr, SecretStr | None]:
        with self._lock:
            if name not in self._values:
                value = self._declared[name]
                upcoming = self._first(value.upcoming)
                current = self._first(value.homes)
                if upcoming is not None:
                    self._values[name] = upcoming, self._first(value.homes, other_than=upcoming)
                elif current is None:
                    self._require_none(value)
                    self._values[name] = self._new(value), None
                elif name in self._rotate:
                    self._values[name] = self._new(value), current
                else:
                    self._values[name] = current, None
            return self._values[name]

    def _new(self, value: GeneratedValue) -> SecretStr:
        secret = SecretStr(value.make())
        self._learn(secret)
        self._made.append(secret.get_secret_value())
        return secret

    def _answer(self, system: str, query: object) -> object:
        snapshot = self._session.snapshot(system)
        unasked = Unknown(f"{system} was not asked")
        return unasked if snapshot is None else snapshot.answers.get(query, unasked)

    def _first(self, places: Iterable[AnswerId], other_than: SecretStr | None = None) -> SecretStr | None:
        answers = (self._answer(system, query) for system, query in places)
        secrets = (answer for answer in answers if isinstance(answer, SecretStr) and answer != other_than)
        return next(secrets, None)

    def _require_none(self, value: GeneratedValue) -> None:
        """Make sure that no home has a value: each says so itself, or does not exist.

        Raises:
            NotYet: a home gives no answer.
        """
        for system, query in value.homes:
            answer = self._answer(system, query)
            if not isinstance(answer, Unknown):
                continue
            handle = self._session.systems.get(system)
            silence = None if handle is None or handle.snapshot is not None else handle.error
            if isinstance(silence, AwayError) and silence.away.absent:
                continue
            reason = answer.reason if silence is None else silence.diagnostics[0].summary
            summary = f"unknown whether {system} has a value for {value.name}: {reason}"
            raise NotYet(system, query, Diagnostic("UNKNOWN", summary), silence)
