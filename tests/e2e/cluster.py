"""Clusters in the lab: what runs as k3s, which nodes are ready, and a load balancer before several servers.

What runs as k3s is a stand-in unless PROVISION_LAB_K3S names a real binary: it proves order, files, tokens
and resumption, and nothing about Kubernetes. Ids of tests say which of both it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from provision.lab.k3s.build import write
from tests.e2e.site import Done, Site

REAL = os.environ.get("PROVISION_LAB_K3S", "")
WHICH = "k3s: real" if REAL else "k3s: stand-in"
VERSION = "v1.35.7+k3s1"
TOKEN = "/etc/rancher/k3s/token"
FULL_TOKEN = "/var/lib/rancher/k3s/server/token"
BALANCER = "198.18.0.254"
"""The controller's own address in the lab's network."""
PORT = 6443
ROLES = ("k3s_server", "k3s_agent")
_PATIENCE = 2.0


def program(folder: Path) -> Path:
    """Return what runs as k3s, in a folder."""
    binary = folder / "k3s"
    if REAL:
        shutil.copy(REAL, binary)
    else:
        write(binary)
    return binary


def outcomes(done: Done) -> dict[str, str]:
    """Return how the steps of an apply that set k3s up ended."""
    return {
        f"{step['subject']} {step['role']}": step["outcome"]
        for step in done.events("step_ended")
        if step["role"] in ROLES
    }


def ready_nodes(site: Site, server: str) -> set[str]:
    """Return the nodes that are ready, as a server's own API says, asked without the product."""
    tls = "/var/lib/rancher/k3s/server/tls"
    script = (
        f"curl -s --cacert {tls}/server-ca.crt --cert {tls}/client-admin.crt --key {tls}/client-admin.key"
        " https://127.0.0.1:6443/api/v1/nodes | python3 -c 'import json, sys\n"
        'for node in json.load(sys.stdin)["items"]:\n'
        '    states = {each["type"]: each["status"] for each in node["status"]["conditions"]}\n'
        '    print(node["metadata"]["name"], states["Ready"])\''
    )
    rows = [line.split() for line in site.on(server, script).splitlines()]
    return {name for name, ready in rows if ready == "True"}


def balanced(site: Site, servers: Sequence[str]) -> subprocess.Popen[bytes]:
    """Serve the stable endpoint of some servers in the lab's network until it is killed."""
    argv = ["nsenter", f"--net=/run/netns/{site.namespace}", "--", sys.executable, __file__, *servers]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL)


# ---------------------------------------------------------------- the balancer's own process


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, servers: list[str]) -> None:
    for server in servers:
        with suppress(OSError, TimeoutError):
            opened = asyncio.open_connection(server, PORT)
            answers, requests = await asyncio.wait_for(opened, _PATIENCE)
            await asyncio.gather(_copy(reader, requests), _copy(answers, writer))
            return
    writer.close()


async def _balance(servers: list[str]) -> None:
    serving = await asyncio.start_server(lambda r, w: _forward(r, w, servers), BALANCER, PORT)
    await serving.serve_forever()


if __name__ == "__main__":
    asyncio.run(_balance(sys.argv[1:]))
