"""The stand-in of a server: files, tokens, registration, and the small Kubernetes API."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.lab.k3s.authority import Authority, token_prefix
from provision.lab.k3s.client import Client
from provision.lab.k3s.settings import DATA, ETC, PORT, VERSION, FatalError, Settings, log, notify
from provision.lab.kube.app import MERGE, KubeApi, Request
from provision.lab.kube.server import Beside, KubeServer

SERVER = DATA / "server"
TOKEN, AGENT_TOKEN = SERVER / "token", SERVER / "agent-token"
STATE = SERVER / "db" / "state.db"
SNAPSHOTS = SERVER / "db" / "snapshots"
OK = 200
SILENCE = 40.0
"""Seconds without a word of a node after which it is not ready: Kubernetes' own, until 1.31."""
EVERY = 3.0


class Cluster:
    """What the servers of a cluster share.

    Args:
        file: where it is kept.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.api = KubeApi(version=VERSION)
        self.passwords: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        self.heard: dict[str, float] = {}
        self._lock = threading.RLock()
        self._saved = -1

    def load(self, data: Mapping[str, Any]) -> None:
        """Take what was kept, or what another server has."""
        with self._lock:
            self.tokens = dict(data["tokens"])
            for body in data["objects"]:
                self.api.store.seed(body)

    def dump(self) -> dict[str, Any]:
        """Return all that is kept; kinds come before objects of these kinds."""
        with self._lock:
            store = self.api.store
            kinds = sorted(store.kinds.values(), key=lambda kind: kind.name != "CustomResourceDefinition")
            objects = [body for kind in kinds for body in store.listed(kind)]
            return {"tokens": self.tokens, "objects": objects}

    def save(self) -> None:
        """Keep everything; the file is whole at any time."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(self.dump()))
        fresh.replace(self.file)

    def register(self, data: Mapping[str, Any]) -> str:
        """Take a node that joins, or speaks again; return why it may not, or nothing."""
        with self._lock:
            name = str(data["name"])
            secret = f"/api/v1/namespaces/kube-system/secrets/{name}.node-password.k3s"
            if self.api.handle(Request("GET", secret)).status == OK:
                if not self.has_joined(data):
                    return f"Node password rejected, duplicate hostname or another password for {name}"
            else:
                metadata = {"name": f"{name}.node-password.k3s", "namespace": "kube-system"}
                held = {"hash": _digest(str(data["password"]))}
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": held}
                self._send("POST", "/api/v1/namespaces/kube-system/secrets", body)
            arguments = {"k3s.io/node-args": json.dumps(data["arguments"])}
            node = self.api.handle(Request("GET", f"/api/v1/nodes/{name}"))
            if node.status != OK:
                labels = {"kubernetes.io/hostname": name, **data["labels"]}
                about = {"name": name, "labels": labels, "annotations": arguments}
                spec = {"taints": data["taints"]} if data["taints"] else {}
                body = {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": spec}
                self._send("POST", "/api/v1/nodes", body)
                self.heard.pop(name, None)
            elif isinstance(node.body, dict) and not _says(node.body, arguments, data["version"]):
                self.heard.pop(name, None)
            if name not in self.heard:
                self._send("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": arguments}}, MERGE)
                self._status(name, data, ready=True)
            self.heard[name] = time.monotonic()
            return ""

    def has_joined(self, data: Mapping[str, Any]) -> bool:
        """Whether a node proves that it is one of ours: k3s takes its certificate, whatever the token is."""
        secret = f"/api/v1/namespaces/kube-system/secrets/{data['name']}.node-password.k3s"
        held = self.api.handle(Request("GET", secret))
        if not isinstance(held.body, dict) or held.status != OK:
            return False
        return bool(held.body["data"]["hash"] == _digest(str(data["password"])))

    def user_of(self, authorization: str) -> str:
        """Return whose password a request has, empty if nobody's."""
        with contextlib.suppress(ValueError, IndexError):
            user, _, password = base64.b64decode(authorization.split()[1]).decode().partition(":")
            if self.tokens.get(user) == password:
                return user
        return ""

    def rotate(self, new: str) -> None:
        """Take another token; agents share it unless they have one of their own."""
        former = self.tokens["server"]
        self.tokens = {name: new if value == former else value for name, value in self.tokens.items()}

    def look(self) -> None:
        """Note which nodes have been silent for too long."""
        with self._lock:
            silent = [name for name, when in self.heard.items() if time.monotonic() - when > SILENCE]
            for name in silent:
                del self.heard[name]
                self._status(name, {}, ready=False)

    def _status(self, name: str, data: Mapping[str, Any], *, ready: bool) -> None:
        reason = "KubeletReady" if ready else "NodeStatusUnknown"
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": reason}
        status: dict[str, Any] = {"conditions": [condition]}
        if data:
            info = {
                "kubeletVersion": data["version"],
                "machineID": data["machine"],
                "containerRuntimeVersion": "none",
            }
            status["nodeInfo"] = info
            if "node-role.kubernetes.io/etcd" in data["labels"]:
                status["conditions"].append({"type": "EtcdIsVoter", "status": "True"})
            kinds = (("InternalIP", data["address"]), ("Hostname", name))
            status["addresses"] = [{"type": kind, "address": value} for kind, value in kinds]
            status["capacity"] = status["allocatable"] = {"cpu": "1", "memory": "512Mi", "pods": "110"}
        self._send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)

    def _send(self, method: str, path: str, body: object, kind: str = "application/json") -> None:
        answer = self.api.handle(Request(method, f"{path}?fieldManager=k3s", kind, json.dumps(body)))
        if answer.status >= 400:  # noqa: PLR2004 - errors
            log(f"{method} {path}: {answer.body}", "error")


def _digest(password: str) -> str:
    return base64.b64encode(hashlib.sha256(password.encode()).hexdigest().encode()).decode()


def _says(node: Mapping[str, Any], arguments: Mapping[str, str], version: str) -> bool:
    """Whether a Node is of this start of its k3s."""
    present = node["metadata"].get("annotations") or {}
    info = node.get("status", {}).get("nodeInfo") or {}
    return arguments.items() <= present.items() and info.get("kubeletVersion", version) == version


def serve(settings: Settings) -> None:
    """Run a server until it is stopped.

    Raises:
        FatalError: as k3s would end.
    """
    name, url = settings.node, settings.one("server")
    cluster, authority = Cluster(STATE), Authority(SERVER / "tls")
    _open_cluster(cluster, authority, settings)
    authority.make()
    _write_tokens(cluster, authority)
    hosts = [*settings.all("tls-san"), settings.one("node-ip", "127.0.0.1"), "127.0.0.1", "localhost", name]
    certificate, key = authority.issue("serving-kube-apiserver", f"/CN={name}", hosts)
    kubeconfig = ETC / "k3s.yaml"
    ETC.mkdir(parents=True, exist_ok=True)
    kubeconfig.touch()
    kubeconfig.chmod(int(settings.one("write-kubeconfig-mode", "0600"), 8))
    kubeconfig.write_text(authority.kubeconfig(PORT))
    cluster.save()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    own = _beside(cluster, authority)
    KubeServer(cluster.api, ("0.0.0.0", PORT), context, beside=own).start()  # noqa: S104 - nodes reach it
    data = described(settings, "server")
    roles = {"node-role.kubernetes.io/control-plane": "true"}
    if settings.one("cluster-init") or url:
        roles["node-role.kubernetes.io/etcd"] = "true"
    data["labels"] = {**data["labels"], **roles}
    refused = cluster.register(data)
    if refused:
        raise FatalError(refused)
    log(f"the stand-in is up and running as {name}")
    notify("READY=1\n")
    while True:
        time.sleep(EVERY)
        cluster.register(data)
        cluster.look()
        if url:
            with contextlib.suppress(OSError, ValueError):
                other = Client(url, _full(authority, "server", cluster.tokens["server"]))
                other.put("/v1-k3s/node", data)
        cluster.save()


def _open_cluster(cluster: Cluster, authority: Authority, settings: Settings) -> None:
    """Take the cluster that is here, that of another server, or a new one."""
    token, url = settings.token(), settings.one("server")
    password = token.rpartition(":")[2] or secrets.token_hex(16)
    if STATE.exists():
        cluster.load(json.loads(STATE.read_text()))
        if url:  # the servers of a real cluster have one datastore, with one token
            with contextlib.suppress(OSError, FatalError):
                shared = Client(url, token).get("/v1-k3s/server-bootstrap")
                cluster.tokens = dict(shared["cluster"]["tokens"])
        if cluster.tokens["server"] != password:
            raise FatalError("bootstrap data already found and encrypted with different token")
    elif url:
        _join(cluster, authority, url, token)
    else:
        agent = settings.token("agent-token") or password
        cluster.tokens = {"server": password, "node": agent.rpartition(":")[2]}


def described(settings: Settings, command: str) -> dict[str, Any]:
    """Return what a node says of itself when it registers."""
    folder = Path("/etc/rancher/node")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "password"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(16))
    machine = Path("/etc/machine-id")
    taints = []
    for text in settings.all("node-taint"):
        head, _, effect = text.rpartition(":")
        key, equals, value = head.partition("=")
        taints.append({"key": key, "effect": effect, **({"value": value} if equals else {})})
    labels = dict(text.partition("=")[::2] for text in settings.all("node-label"))
    return {
        "name": settings.node,
        "version": VERSION,
        "password": file.read_text().strip(),
        "address": settings.one("node-ip", "127.0.0.1"),
        "machine": machine.read_text().strip() if machine.exists() else "",
        "labels": labels,
        "taints": taints,
        "arguments": [command, *settings.arguments()],
    }


def _join(cluster: Cluster, authority: Authority, url: str, token: str) -> None:
    client = Client(url, token)
    data: dict[str, Any] = {}
    while not data:
        try:
            data = client.get("/v1-k3s/server-bootstrap")
        except OSError as error:
            log(f"failed to get CA certs from {url}: {error}", "error")
            time.sleep(2)
    authority.take(base64.b64decode(data["certificate"]), base64.b64decode(data["key"]))
    cluster.load(data["cluster"])


def _full(authority: Authority, user: str, password: str) -> str:
    return f"{token_prefix(authority.certificate.read_bytes())}::{user}:{password}"


def _write_tokens(cluster: Cluster, authority: Authority) -> None:
    for file, user in ((TOKEN, "server"), (AGENT_TOKEN, "node")):
        file.touch(mode=0o600)
        file.write_text(_full(authority, user, cluster.tokens[user]) + "\n")


def _beside(cluster: Cluster, authority: Authority) -> Beside:
    """Return how k3s's own paths are answered, beside those of Kubernetes."""

    def answer(method: str, path: str, authorization: str, body: str) -> tuple[int, str] | None:
        if path == "/cacerts":
            return 200, authority.certificate.read_text()
        if path == "/ping":
            return 200, "pong"
        if not path.startswith("/v1-k3s/"):
            return None
        return _own_path(cluster, authority, f"{method} {path.removeprefix('/v1-k3s/')}", authorization, body)

    return answer


def _own_path(
    cluster: Cluster, authority: Authority, what: str, authorization: str, body: str
) -> tuple[int, str]:
    user = cluster.user_of(authorization)
    if what == "PUT node" and cluster.has_joined(json.loads(body)):
        user = user or "node"
    if not user or (what != "PUT node" and user != "server"):
        return 401, "not authorized"
    if what == "PUT node":
        refused = cluster.register(json.loads(body))
        return (403, refused) if refused else (200, "ok")
    if what == "GET server-bootstrap":
        pair = {
            "certificate": base64.b64encode(authority.certificate.read_bytes()).decode(),
            "key": base64.b64encode(authority.key.read_bytes()).decode(),
        }
        return 200, json.dumps({**pair, "cluster": cluster.dump()})
    if what == "PUT token":
        cluster.rotate(str(json.loads(body)["newToken"]))
        _write_tokens(cluster, authority)
        cluster.save()
        return 200, "ok"
    return 404, "404 page not found"


def snapshot(arguments: list[str]) -> None:
    """Take a snapshot of the datastore, or list those that there are."""
    if arguments[:1] == ["save"]:
        SNAPSHOTS.mkdir(parents=True, exist_ok=True)
        name = time.strftime("on-demand-%Y%m%dT%H%M%S", time.gmtime())
        (SNAPSHOTS / name).write_bytes(STATE.read_bytes())
        log(f"Snapshot {name} saved.")
        return
    rows = ["Name Location Size Created"]
    for file in sorted(SNAPSHOTS.glob("*")) if SNAPSHOTS.is_dir() else ():
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(file.stat().st_mtime))
        rows.append(f"{file.name} file://{file} {file.stat().st_size} {created}")
    sys.stdout.write("\n".join(rows) + "\n")
