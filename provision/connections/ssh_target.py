"""The SSH server that an endpoint means, as ssh(1) would resolve it."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from provision.connections import ssh_config
from provision.connections.contracts import SshEndpoint
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

PORT = 22

NO_AGENT = "none"
"""The value of IdentityAgent that means: use no agent."""

_HOPS = 16
"""More jump hosts than this are a loop."""

_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>.+)@)?(?:\[(?P<bracket>[^]]+)\]|(?P<host>[^:]+|[^]]*:.*:.*?))(?::(?P<port>\d+))?/?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server, the target itself or a jump host.

    Args:
        host: name or address to connect to.
        name: name under which its host key is known.
        port: TCP port.
        user: login.
        keys: private key files, or public ones of keys in the agent, tried in this order.
        only_keys: offer no other key of the agent and no default key (a key was given).
        known_hosts: files with known host keys.
        jump: the server before it, None for a direct connection.
        command: ProxyCommand for the user's shell, empty for none.
        accept: as `SshEndpoint.accept`; empty for jump hosts.
        agent: socket of the agent; empty for the one of the environment, `none` for no agent.
        bind: address of ours that a direct connection comes from, empty for any.
        device: network device of ours that it leaves by, empty for any.
        family: `any`, `inet` or `inet6`.
    """

    host: str
    name: str
    port: int
    user: str
    keys: tuple[Path, ...]
    only_keys: bool
    known_hosts: tuple[Path, ...]
    jump: Target | None = None
    command: str = ""
    accept: str = ""
    agent: str = ""
    bind: str = ""
    device: str = ""
    family: str = "any"


def default_known_hosts() -> tuple[Path, ...]:
    """Return the files that ssh(1) reads."""
    ssh = Path.home() / ".ssh"
    return (ssh / "known_hosts", ssh / "known_hosts2", *_GLOBAL_KNOWN_HOSTS)


_GLOBAL_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))


def resolve(endpoint: SshEndpoint) -> Target:
    """Return the server that an endpoint means: what the inventory names wins over ssh's configuration.

    Raises:
        Permanent: `SSH_CONFIG_UNREADABLE`; `SSH_JUMP_LOOP`.
    """
    resolver = _Resolver(endpoint.address, endpoint.known_hosts, configured=ssh_config.applies())
    target = resolver.target(endpoint.address, endpoint.user, endpoint.port, endpoint.jump, ())
    if endpoint.key is not None:
        target = replace(target, keys=(endpoint.key,), only_keys=True)
    return replace(target, accept=endpoint.accept)


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Resolves one endpoint and its jump hosts.

    Args:
        system: name for messages.
        known_hosts: the file that the inventory names.
        configured: whether ssh(1) has a configuration to ask for.
    """

    system: str
    known_hosts: Path | None
    configured: bool

    def target(
        self, host: str, user: str | None, port: int | None, jump: str | None, passed: tuple[str, ...]
    ) -> Target:
        """Return a server; `passed` are the servers that are reached through it."""
        if len(passed) > _HOPS:
            raise self._loop((*passed, host))
        options = ssh_config.options_of(host, user, port, self.system) if self.configured else {}
        hostname = _first(options, "hostname") or host
        port = port or int(_first(options, "port") or PORT)
        user = user or _first(options, "user") or getpass.getuser()
        alias = _first(options, "hostkeyalias")
        tokens = _tokens(host, hostname, port, user, alias)
        keys, only_keys = _identities(options, tokens)
        # a jump host that the inventory names wins over ssh's configuration, as `ssh -J` does
        hops = jump if jump is not None else _first(options, "proxyjump")
        command = "" if jump is not None else _first(options, "proxycommand")
        return Target(
            host=hostname,
            name=alias or hostname,
            port=port,
            user=user,
            keys=keys,
            only_keys=only_keys,
            known_hosts=self._known_hosts(options, tokens),
            jump=self._jump(hops, (*passed, host)),
            command="" if command == "none" or hops not in ("", "none") else _expand(command, tokens),
            agent=_agent(_first(options, "identityagent")),
            bind=_first(options, "bindaddress"),
            device=_first(options, "bindinterface"),
            family=_first(options, "addressfamily") or "any",
        )

    def _jump(self, hops: str, passed: tuple[str, ...]) -> Target | None:
        """Return the last of several jump hosts, which is reached through those before it."""
        names = [hop.strip() for hop in hops.split(",") if hop.strip()]
        if not names or names == ["none"]:
            return None
        match = _HOP.fullmatch(names[-1])
        if match is None:
            raise self._loop((*passed, names[-1]))
        before = ",".join(names[:-1]) or None
        port = int(match["port"]) if match["port"] else None
        return self.target(match["bracket"] or match["host"], match["user"], port, before, passed)

    def _known_hosts(self, options: ssh_config.Options, tokens: Mapping[str, str]) -> tuple[Path, ...]:
        if self.known_hosts is not None:
            return (self.known_hosts,)
        if not options:
            return default_known_hosts()
        own = _paths(_first(options, "userknownhostsfile"), tokens)
        shared = _paths(_first(options, "globalknownhostsfile"), tokens) or _GLOBAL_KNOWN_HOSTS
        is_default = [path.name for path in own] == ["known_hosts", "known_hosts2"]
        if is_default and {path.parent.name for path in own} == {".ssh"}:
            own = default_known_hosts()[:2]  # of $HOME, which ssh(1) does not look at
        return (*own, *shared)

    def _loop(self, names: tuple[str, ...]) -> Permanent:
        return Permanent(
            Diagnostic(
                "SSH_JUMP_LOOP",
                f"{self.system}: the jump hosts do not lead to {self.system}",
                self.system,
                evidence=(" through ".join(names[:4]),),
                untouched="nothing was sent to the host",
                remedy=f"correct ProxyJump in ~/.ssh/config: `ssh -G {shlex.quote(names[-1])}` shows it",
            )
        )


def _first(options: ssh_config.Options, keyword: str) -> str:
    return options.get(keyword, ("",))[0]


def _tokens(host: str, hostname: str, port: int, user: str, alias: str) -> Mapping[str, str]:
    """Return what ssh_config(5) puts in the place of its percent signs."""
    machine = socket.gethostname()
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": hostname,
        "i": str(os.getuid()),
        "k": alias or host,
        "L": machine.partition(".")[0],
        "l": machine,
        "n": host,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), _expand(text, tokens))
    return Path(text).expanduser()


def _paths(text: str, tokens: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of a list; `ssh -G` prints no quotes, so a blank before a slash separates them."""
    if not text or text == "none":
        return ()
    words = re.split(r"\s+(?=[/~])", text) if "/" in text else text.split()
    return tuple(_path(word, tokens) for word in words)


def _identities(options: ssh_config.Options, tokens: Mapping[str, str]) -> tuple[tuple[Path, ...], bool]:
    """Return the configured key files, and whether no others may be offered."""
    names = options.get("identityfile", ())
    only = _first(options, "identitiesonly") == "yes"
    if names == ssh_config.default_identities() if names else True:
        paths = [_path(name, tokens) for name in names] if only else []
        return tuple(path for path in paths if path.is_file()), only
    return tuple(_path(name, tokens) for name in names if name != "none"), only


def _agent(value: str) -> str:
    if value in ("", "SSH_AUTH_SOCK", "$SSH_AUTH_SOCK"):
        return ""
    if value.startswith("$"):  # ssh_config(5): the name of an environment variable
        return os.environ.get(value[1:].strip("{}"), NO_AGENT)
    return value
