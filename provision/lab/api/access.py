"""Users, API tokens, roles, access lists and tickets.

Facts: Proxmox VE's user management documentation (privilege separation of tokens, path inheritance) and
answers measured on 9.2.11.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.lab.api import privileges
from provision.lab.api.errors import ApiError, bad_parameter, failed, forbidden
from provision.lab.api.store import read_json, write_json, write_text

SUPERUSER = "root@pam"
TICKET_SECONDS = 7200
CLOCK_SKEW = 300
STANDARD_PATHS = (
    *("/", "/access", "/access/groups", "/mapping", "/mapping/pci", "/nodes", "/pool", "/sdn"),
    *("/sdn/zones", "/sdn/zones/localnetwork", "/storage", "/vms"),
)


@dataclass(frozen=True, slots=True)
class Auth:
    """Who sent a request: a user, or a token of that user."""

    user: str
    token: str | None = None

    @property
    def name(self) -> str:
        """`user@realm` or `user@realm!token`."""
        return self.user if self.token is None else f"{self.user}!{self.token}"

    @property
    def is_root(self) -> bool:
        """Only root's ticket may do what the real code calls root-only; a token of root may not."""
        return self.token is None and self.user == SUPERUSER


def _hash(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**10, r=8, p=1).hex()


def _fingerprint(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """The access state in `access.json`; secrets are kept as hashes.

    Args:
        folder: the lab's state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "access.json"
        self._lock = threading.RLock()
        self._key_path = folder / "authkey"
        self._seen: tuple[int, int] | None = None
        self._state: dict[str, Any] = {"users": {}, "tokens": {}, "roles": {}, "acl": []}
        self._reload()
        if not self._key_path.exists():
            write_text(self._key_path, secrets.token_hex(32), 0o600)
        self._key = self._key_path.read_text(encoding="utf-8").encode()
        if SUPERUSER not in self._state["users"]:
            password = secrets.token_urlsafe(24)
            # The password file first: killed in between, the next start makes a new pair.
            write_text(folder / "root-password", password + "\n", 0o600)
            self.add_user(SUPERUSER, password)

    def _reload(self) -> None:
        """Read the file when another process has replaced it (`bootstrap_token` beside a running API)."""
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                return
            if self._seen != (status.st_ino, status.st_mtime_ns):
                self._state = read_json(self._path, self._state)
                self._seen = (status.st_ino, status.st_mtime_ns)

    def _save(self) -> None:
        write_json(self._path, self._state, 0o600)
        status = self._path.stat()
        self._seen = (status.st_ino, status.st_mtime_ns)

    # Users and tokens

    def add_user(self, user: str, password: str | None) -> None:
        """Make a user; 500 when it exists."""
        with self._lock:
            if user in self._state["users"]:
                raise failed(f"create user failed: user '{user}' already exists")
            salt = secrets.token_bytes(16)
            self._state["users"][user] = {
                "salt": salt.hex(),
                "hash": None if password is None else _hash(password, salt),
            }
            self._save()

    def users(self) -> list[str]:
        """Return all user ids."""
        return sorted(self._state["users"])

    def require_user(self, user: str) -> None:
        """Raise 500 unless the user exists."""
        if user not in self._state["users"]:
            raise failed(f"no such user ('{user}')")

    def delete_user(self, user: str) -> None:
        """Remove a user with its tokens and access entries."""
        with self._lock:
            self.require_user(user)
            for token in self.tokens(user):
                self.delete_token(user, token)
            self._drop_entries("user", user)
            del self._state["users"][user]
            self._save()

    def tokens(self, user: str) -> dict[str, dict[str, Any]]:
        """Return a user's tokens: id -> info."""
        tokens: dict[str, dict[str, Any]] = self._state["tokens"].get(user, {})
        return {name: {"privsep": int(token["privsep"]), "expire": 0} for name, token in tokens.items()}

    def add_token(self, user: str, token: str, *, privsep: bool) -> str:
        """Make a token and return its secret, which is shown once."""
        with self._lock:
            self.require_user(user)
            held = self._state["tokens"].setdefault(user, {})
            if token in held:
                raise bad_parameter("tokenid", "Token already exists.")
            secret = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
            held[token] = {"privsep": privsep, "hash": _fingerprint(secret)}
            self._save()
            return secret

    def delete_token(self, user: str, token: str) -> None:
        """Remove a token and its access entries."""
        with self._lock:
            if token not in self._state["tokens"].get(user, {}):
                raise failed(f"no such token '{token}' for user '{user}'")
            del self._state["tokens"][user][token]
            self._drop_entries("token", f"{user}!{token}")
            self._save()

    # Roles and access lists

    def roles(self) -> dict[str, frozenset[str]]:
        """Return built-in and own roles with their privileges."""
        return privileges.ROLES | {name: frozenset(privs) for name, privs in self._state["roles"].items()}

    def set_role(self, role: str, privs: frozenset[str], *, new: bool) -> None:
        """Make or change an own role."""
        with self._lock:
            if new and role in self.roles():
                raise failed(f"role '{role}' already exists")
            if not new and role not in self._state["roles"]:
                raise failed(f"role '{role}' does not exist")
            self._state["roles"][role] = sorted(privs)
            self._save()

    def delete_role(self, role: str) -> None:
        """Remove an own role and the entries that name it."""
        with self._lock:
            if role not in self._state["roles"]:
                raise failed(f"role '{role}' does not exist")
            del self._state["roles"][role]
            self._state["acl"] = [entry for entry in self._state["acl"] if entry["roleid"] != role]
            self._save()

    def acl(self) -> list[dict[str, Any]]:
        """Return the access entries as the API lists them."""
        return [dict(entry) for entry in self._state["acl"]]

    def set_acl(self, path: str, kind: str, who: str, role: str, *, propagate: bool, delete: bool) -> None:
        """Add or remove one access entry; `kind` is user or token."""
        path = "/" + "/".join(filter(None, path.split("/")))
        with self._lock:
            if role not in self.roles():
                raise failed(f"role '{role}' does not exist")
            user, _, token = who.partition("!")
            if user not in self._state["users"]:
                raise failed(f"user '{user}' does not exist")
            if kind == "token" and token not in self.tokens(user):
                raise failed(f"no such token '{token}' for user '{user}'")
            entry = {"path": path, "type": kind, "ugid": who, "roleid": role, "propagate": int(propagate)}
            same = ("path", "type", "ugid", "roleid")
            kept = [
                existing
                for existing in self._state["acl"]
                if any(existing[key] != entry[key] for key in same)
            ]
            self._state["acl"] = kept if delete else [*kept, entry]
            self._save()

    def _drop_entries(self, kind: str, who: str) -> None:
        self._state["acl"] = [
            entry for entry in self._state["acl"] if (entry["type"], entry["ugid"]) != (kind, who)
        ]

    # What somebody may do

    def _granted(self, kind: str, who: str, path: str) -> dict[str, int]:
        levels = ["/"]
        for part in filter(None, path.split("/")):
            levels.append(levels[-1].rstrip("/") + "/" + part)
        result: dict[str, int] = {}
        for level in levels:
            entries = [
                entry
                for entry in self._state["acl"]
                if (entry["type"], entry["ugid"], entry["path"]) == (kind, who, level)
                and (entry["propagate"] or level == levels[-1])
            ]
            if entries:  # a deeper entry replaces what was inherited
                result = {}
                if all(entry["roleid"] != "NoAccess" for entry in entries):
                    for entry in entries:
                        for priv in self.roles().get(entry["roleid"], ()):
                            result[priv] = max(result.get(priv, 0), entry["propagate"])
        return result

    def permissions(self, auth: Auth, path: str) -> dict[str, int]:
        """Return privilege -> propagates; a separated token has what it and its user both have."""
        own = dict.fromkeys(privileges.ALL, 1)
        if auth.user != SUPERUSER:
            own = self._granted("user", auth.user, path)
        if auth.token is None or not self._state["tokens"][auth.user][auth.token]["privsep"]:
            return own
        token = self._granted("token", auth.name, path)
        return {priv: min(flag, token[priv]) for priv, flag in own.items() if priv in token}

    def all_permissions(self, auth: Auth, *more: str) -> dict[str, dict[str, int]]:
        """Return the permissions of every path that is named anywhere, and of some more."""
        paths = {*STANDARD_PATHS, *more, *(entry["path"] for entry in self._state["acl"])}
        permissions = {path: self.permissions(auth, path) for path in sorted(paths)}
        return {path: privs for path, privs in permissions.items() if privs}

    def may(self, auth: Auth, path: str, *privs: str, some: bool = False) -> bool:
        """Say whether all (or some) of the privileges are held on a path."""
        held = self.permissions(auth, path)
        return (any if some else all)(priv in held for priv in privs)

    def check(self, auth: Auth, path: str, *privs: str, some: bool = False) -> None:
        """Raise 403 unless all (or some) of the privileges are held on a path."""
        held = self.permissions(auth, path)
        if some:
            if not any(priv in held for priv in privs):
                raise forbidden(f"{path}, {'|'.join(privs)}")
            return
        for priv in privs:
            if priv not in held:
                raise forbidden(f"{path}, {priv}")

    # Tickets

    def _sign(self, text: str) -> str:
        return base64.b64encode(hmac.new(self._key, text.encode(), hashlib.sha256).digest()).decode()

    def login(self, user: str, password: str) -> dict[str, Any]:
        """Return ticket, CSRF token and capabilities; the password may be a ticket, which is renewed."""
        self._reload()
        entry = self._state["users"].get(user)
        known = entry is not None and (
            self._ticket_user(password) == user
            or (
                entry["hash"] is not None
                and hmac.compare_digest(entry["hash"], _hash(password, bytes.fromhex(entry["salt"])))
            )
        )
        if not known:
            raise ApiError(401, "authentication failure")
        stamp = f"{int(time.time()):08X}"
        auth = Auth(user)
        caps = {
            group: {priv: 1 for priv in sorted(members) if self.may(auth, "/", priv)}
            for group, members in privileges.capability_groups().items()
        }
        plain = f"PVE:{user}:{stamp}"
        return {
            "username": user,
            "ticket": f"{plain}::{self._sign(plain)}",
            "CSRFPreventionToken": f"{stamp}:{self._sign(f'csrf:{user}:{stamp}')}",
            "cap": caps,
        }

    def _fresh(self, stamp: str) -> bool:
        return (
            bool(re.fullmatch("[0-9A-F]{8}", stamp))
            and -CLOCK_SKEW < time.time() - int(stamp, 16) < TICKET_SECONDS
        )

    def _ticket_user(self, ticket: str) -> str | None:
        plain, _, signature = ticket.partition("::")
        parts = plain.split(":")
        if len(parts) != 3 or parts[0] != "PVE" or not self._fresh(parts[2]):  # noqa: PLR2004 - prefix, user, time
            return None
        return parts[1] if hmac.compare_digest(self._sign(plain), signature) else None

    def authenticate(
        self, method: str, cookie: str | None, authorization: str | None, csrf: str | None
    ) -> Auth:
        """Say who sends a request.

        Raises:
            ApiError: 401 without a body, with the real reason phrases.
        """
        self._reload()
        if authorization is not None and authorization.startswith("PVEAPIToken="):
            return self._token_auth(authorization.removeprefix("PVEAPIToken="))
        if cookie is None:
            raise ApiError(401, "No ticket", bare=True)
        user = self._ticket_user(cookie)
        if user is None or user not in self._state["users"]:
            raise ApiError(401, "Authentication failed!", bare=True)
        if method != "GET":
            stamp, _, signature = (csrf or "").partition(":")
            good = self._sign(f"csrf:{user}:{stamp}")
            if not self._fresh(stamp) or not hmac.compare_digest(good, signature):
                raise ApiError(401, "Permission denied - invalid csrf token", bare=True)
        return Auth(user)

    def _token_auth(self, text: str) -> Auth:
        full, _, secret = text.partition("=")
        user, _, token = full.partition("!")
        tokens: Mapping[str, Mapping[str, Any]] = self._state["tokens"].get(user, {})
        entry = tokens.get(token)
        if entry is None or not hmac.compare_digest(entry["hash"], _fingerprint(secret)):
            raise ApiError(401, "Authentication failed!", bare=True)
        return Auth(user, token)


def bootstrap_token(
    folder: Path,
    user: str,
    tokenid: str,
    *,
    role: str = privileges.TOOL_ROLE,
    privs: frozenset[str] = privileges.TOOL_PRIVILEGES,
) -> str:
    """Make a user with a privilege-separated token that both have `role` on `/`; return the token's secret.

    Repeating it replaces the token. It may run beside an API that serves `folder`.
    """
    return grant_token(Access(folder), user, tokenid, role=role, privs=privs)


def grant_token(
    access: Access,
    user: str,
    tokenid: str,
    *,
    role: str = privileges.TOOL_ROLE,
    privs: frozenset[str] = privileges.TOOL_PRIVILEGES,
) -> str:
    """Do what `bootstrap_token` does on a loaded access state."""
    if user not in access.users():
        access.add_user(user, None)
    if role not in privileges.ROLES:
        access.set_role(role, privs, new=role not in access.roles())
    if tokenid in access.tokens(user):
        access.delete_token(user, tokenid)
    secret = access.add_token(user, tokenid, privsep=True)
    if user != SUPERUSER:
        access.set_acl("/", "user", user, role, propagate=True, delete=False)
    access.set_acl("/", "token", f"{user}!{tokenid}", role, propagate=True, delete=False)
    return secret
