"""`/access` and `/version`: what `bootstrap` and every client's login need."""

from __future__ import annotations

import re
from typing import Any

from provision.lab.api import privileges
from provision.lab.api.access import SUPERUSER, Auth
from provision.lab.api.core import Call, Need, Route
from provision.lab.api.errors import bad_parameter, failed
from provision.lab.api.schema import Field, FormatError, Params

VERSION = "9.2.11"


def _privileges(text: str) -> None:
    for priv in filter(None, re.split(r"[,; ]+", text)):
        if priv not in privileges.ALL:
            raise FormatError(f"invalid privilege '{priv}'")


def _user(text: str) -> None:
    if not re.fullmatch(r"[^\s:/]+@[A-Za-z][\w.-]+", text):
        raise FormatError(f"value '{text}' does not look like a valid user name")


def _names(text: str) -> list[str]:
    return [word for word in re.split(r"[,; ]+", text) if word]


USER = Field(required=True, check=_user, max_length=64)
TOKEN = Field(required=True, pattern=r"[A-Za-z][A-Za-z0-9.\-_]+")
BOOL = Field("boolean")
ROLE = Field(required=True, pattern=r"[A-Za-z0-9.\-_]+")
TEXT = Field()


def _ticket(call: Call) -> Any:
    user = call.text("username")
    if "realm" in call.params and "@" not in user:
        user = f"{user}@{call.text('realm')}"
    return call.lab.access.login(user, call.text("password"))


def _version(_call: Call) -> Any:
    return {"version": VERSION, "release": VERSION.rpartition(".")[0], "repoid": "lab"}


def _permissions(call: Call) -> Any:
    who = call.auth
    if "userid" in call.params:
        user, _, token = call.text("userid").partition("!")
        who = Auth(user, token or None)
        if user != call.auth.user:
            call.check("/access", "Sys.Audit")
        call.lab.access.require_user(user)
        if token and token not in call.lab.access.tokens(user):
            raise failed(f"no such token '{token}' for user '{user}'")
    if "path" in call.params:
        return {call.text("path"): call.lab.access.permissions(who, call.text("path"))}
    lab = call.lab
    things = [f"/nodes/{lab.node}", *(f"/storage/{name}" for name in lab.storages.all)]
    return lab.access.all_permissions(who, *things, *(f"/vms/{vmid}" for vmid in lab.configs.ids()))


def _list_users(call: Call) -> Any:
    everyone = call.may("/access/groups", "User.Modify", "Sys.Audit", some=True)
    names = call.lab.access.users() if everyone else [call.auth.user]
    return [
        {"userid": name, "enable": 1, "expire": 0, "realm-type": name.partition("@")[2]} for name in names
    ]


def _check_user_rights(call: Call) -> None:
    call.check(f"/access/realm/{call.text('userid').rpartition('@')[2]}", "Realm.AllocateUser")
    call.check("/access/groups", "User.Modify")


def _add_user(call: Call) -> None:
    _check_user_rights(call)
    call.lab.access.add_user(call.text("userid"), call.text("password") or None)


def _get_user(call: Call) -> Any:
    if call.text("userid") != call.auth.user:
        call.check("/access/groups", "User.Modify", "Sys.Audit", some=True)
    call.lab.access.require_user(call.text("userid"))
    return {"enable": 1, "expire": 0, "groups": [], "tokens": call.lab.access.tokens(call.text("userid"))}


def _delete_user(call: Call) -> None:
    _check_user_rights(call)
    if call.text("userid") == SUPERUSER:
        raise failed("cannot delete the superuser")
    call.lab.access.delete_user(call.text("userid"))


def _token_rights(call: Call) -> None:
    if call.auth.user != call.text("userid"):
        call.check("/access/groups", "User.Modify")


def _list_tokens(call: Call) -> Any:
    _token_rights(call)
    return [{"tokenid": name, **info} for name, info in call.lab.access.tokens(call.text("userid")).items()]


def _get_token(call: Call) -> Any:
    _token_rights(call)
    tokens = call.lab.access.tokens(call.text("userid"))
    if call.text("tokenid") not in tokens:
        raise failed(f"no such token '{call.text('tokenid')}' for user '{call.text('userid')}'")
    return tokens[call.text("tokenid")]


def _add_token(call: Call) -> Any:
    _token_rights(call)
    user, token = call.text("userid"), call.text("tokenid")
    secret = call.lab.access.add_token(user, token, privsep=call.flag("privsep", default=True))
    # The real one repeats a given value as text and its own default as a number.
    shown: str | int = call.text("privsep") if "privsep" in call.params else 1
    return {"full-tokenid": f"{user}!{token}", "info": {"privsep": shown}, "value": secret}


def _delete_token(call: Call) -> None:
    _token_rights(call)
    call.lab.access.delete_token(call.text("userid"), call.text("tokenid"))


def _list_acl(call: Call) -> Any:
    entries = call.lab.access.acl()
    if call.may("/access", "Sys.Audit", "Permissions.Modify", some=True):
        return entries
    return [entry for entry in entries if call.may(entry["path"], "Permissions.Modify")]


def _set_acl(call: Call) -> None:
    path = call.text("path")
    call.check(path, "Permissions.Modify")
    if not path.startswith("/"):
        raise bad_parameter("path", f"invalid ACL path '{path}'")
    users = [("user", name) for name in _names(call.text("users"))]
    tokens = [("token", name) for name in _names(call.text("tokens"))]
    if not users and not tokens:
        raise bad_parameter("users", "either 'users', 'groups' or 'tokens' is required")
    for role in _names(call.text("roles")):
        for kind, who in users + tokens:
            call.lab.access.set_acl(
                path,
                kind,
                who,
                role,
                propagate=call.flag("propagate", default=True),
                delete=call.flag("delete"),
            )


def _list_roles(call: Call) -> Any:
    return [
        {"roleid": name, "privs": ",".join(sorted(privs)), "special": int(name in privileges.ROLES)}
        for name, privs in call.lab.access.roles().items()
    ]


def _get_role(call: Call) -> Any:
    privs = call.lab.access.roles().get(call.text("roleid"))
    if privs is None:
        raise failed(f"role '{call.text('roleid')}' does not exist")
    return dict.fromkeys(sorted(privs), 1)


def _add_role(call: Call) -> None:
    call.lab.access.set_role(call.text("roleid"), frozenset(_names(call.text("privs"))), new=True)


def _change_role(call: Call) -> None:
    role, privs = call.text("roleid"), frozenset(_names(call.text("privs")))
    if role in privileges.ROLES:
        raise failed(f"auto-generated role '{role}' cannot be modified")
    if call.flag("append"):
        privs |= call.lab.access.roles().get(role, frozenset())
    call.lab.access.set_role(role, privs, new=False)


def _delete_role(call: Call) -> None:
    if call.text("roleid") in privileges.ROLES:
        raise failed(f"auto-generated role '{call.text('roleid')}' can not be deleted")
    call.lab.access.delete_role(call.text("roleid"))


_ROLES_NEED = Need("/access", ("Sys.Modify",))
_ONE_USER = {"userid": USER}
_ONE_TOKEN = {"userid": USER, "tokenid": TOKEN}
_PRIVS = Field(check=_privileges)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/access/ticket",
        _ticket,
        Params(
            {
                "username": Field(required=True),
                "password": Field(required=True),
                "realm": TEXT,
                "otp": TEXT,
                "new-format": BOOL,
            }
        ),
        public=True,
    ),
    Route("GET", "/version", _version),
    Route("GET", "/access/permissions", _permissions, Params({"path": TEXT, "userid": TEXT})),
    Route("GET", "/access/users", _list_users, Params({"enabled": BOOL, "full": BOOL})),
    Route(
        "POST",
        "/access/users",
        _add_user,
        Params({**_ONE_USER, "password": TEXT, "comment": TEXT, "enable": BOOL}),
    ),
    Route("GET", "/access/users/{userid}", _get_user, Params(_ONE_USER)),
    Route("DELETE", "/access/users/{userid}", _delete_user, Params(_ONE_USER)),
    Route("GET", "/access/users/{userid}/token", _list_tokens, Params(_ONE_USER)),
    Route("GET", "/access/users/{userid}/token/{tokenid}", _get_token, Params(_ONE_TOKEN)),
    Route(
        "POST",
        "/access/users/{userid}/token/{tokenid}",
        _add_token,
        Params({**_ONE_TOKEN, "privsep": BOOL, "comment": TEXT, "expire": Field("integer", minimum=0)}),
    ),
    Route("DELETE", "/access/users/{userid}/token/{tokenid}", _delete_token, Params(_ONE_TOKEN)),
    Route("GET", "/access/acl", _list_acl),
    Route(
        "PUT",
        "/access/acl",
        _set_acl,
        Params(
            {
                "path": Field(required=True),
                "roles": Field(required=True),
                "users": TEXT,
                "tokens": TEXT,
                "propagate": BOOL,
                "delete": BOOL,
            }
        ),
    ),
    Route("GET", "/access/roles", _list_roles),
    Route("POST", "/access/roles", _add_role, Params({"roleid": ROLE, "privs": _PRIVS}), _ROLES_NEED),
    Route("GET", "/access/roles/{roleid}", _get_role, Params({"roleid": ROLE})),
    Route(
        "PUT",
        "/access/roles/{roleid}",
        _change_role,
        Params({"roleid": ROLE, "privs": _PRIVS, "append": BOOL}),
        _ROLES_NEED,
    ),
    Route("DELETE", "/access/roles/{roleid}", _delete_role, Params({"roleid": ROLE}), _ROLES_NEED),
)
