"""The stand-in's commands: server, agent, etcd-snapshot, --version."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from provision.lab.k3s import server
from provision.lab.k3s.client import Client
from provision.lab.k3s.settings import DATA, PROGRAM, FatalError, Settings, log, notify, read


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    command, *rest = arguments or ("--help",)
    if command in ("--version", "-v"):
        sys.stdout.write(f"{PROGRAM}\n")
        return 0
    try:
        if command in ("server", "agent"):
            log(PROGRAM)
            _images()
            run = server.serve if command == "server" else _agent
            run(read(rest))
        elif command == "etcd-snapshot":
            server.snapshot(list(rest))
        else:
            sys.stderr.write(f"{PROGRAM}\ncommands: server, agent, etcd-snapshot, --version\n")
            return 64
    except FatalError as error:
        log(str(error), "fatal")
        return 1
    return 0


def _images() -> None:
    folder = DATA / "agent" / "images"
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        log(f"Importing images from {file}")
    containerd = DATA / "agent" / "etc" / "containerd"
    containerd.mkdir(parents=True, exist_ok=True)
    (containerd / "config.toml").write_text("# stand-in: no containerd runs here\nversion = 3\n")


def _agent(settings: Settings) -> None:
    url, token = settings.one("server"), settings.token()
    if not url or not token:
        raise FatalError("--server and --token are required")
    data = server.described(settings, "agent")
    joined = False
    client = Client(url, token)
    while True:
        try:
            client.put("/v1-k3s/node", data)
        except OSError as error:
            log(f"Failed to connect to {url}: {error}", "error")
        except FatalError:
            if not joined:
                raise
            # As real agents, one that has joined goes on with its certificate while the token changes.
            log("the token is not accepted any more", "error")
        else:
            if not joined:
                joined = True
                log(f"joined {url}")
                notify("READY=1\n")
        time.sleep(server.EVERY if joined else 1.0)
