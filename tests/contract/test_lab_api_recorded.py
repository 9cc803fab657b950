"""Replays the exchanges recorded from a real Proxmox VE 9.2.11 against the lab's API."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from provision.lab.api.app import create_app
from provision.lab.api.storages import Storage
from tests.unit.lab_api.client import Answer, request
from tests.unit.lab_api.fakes import FakeGuests, FakeHypervisor, device, make_qcow2

RECORDING = Path(__file__).resolve().parents[3] / "shared" / "pve-api" / "recorded-9.2.11.jsonl.gz"
UNSUPPORTED = Path(__file__).with_name("recorded_unsupported.txt")
MOST_UNSUPPORTED = 16
"""How long the reviewed list may be: when it shrinks, this does; it never grows."""

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason="../shared/pve-api is absent")

ISO = bytes(3_000_000)
ISO_SUM = hashlib.sha256(ISO).hexdigest()
RECORDED_ISO_SUM = "bc911357643846cb58e64e09101c99f16d1be4b1058c6065c4559b7d61239f56"
RECORDED_SERVER = "http://192.0.2.10:8080"

# Requests that the real server got between two recorded exchanges (their effect shows in what follows).
UNRECORDED: dict[int, tuple[tuple[str, str], ...]] = {
    39: (("POST", "/nodes/pve1/qemu/102/status/start"),),
}
# The recording lost empty query values.
QUERIES: dict[int, dict[str, str]] = {259: {"pci-class-blacklist": ""}}

# Parts of answers that belong to the recording's host or to chance.
GENERATED = frozenset(
    {"digest", "meta", "smbios1", "vmgenid", "pid", "pstart", "starttime", "upid", "uptime"}
)

# Keys that the recording's host has by its own nature: a load, a gateway, a ZFS pool, a cluster's networks,
# the certificate that its proxy serves itself, other CPU models, and a VM that was being created just then.
# `saved` is a number there for the newest task and text for the others.
HOST_ONLY = frozenset(
    {
        ".gateway: str",
        "[].abstract: int",
        "[].cgroup-mode: int",
        "[].changes: str",
        "[].cpu: float",
        "[].gateway: str",
        "[].lock: str",
        "[].network-type: str",
        "[].network: str",
        "[].pool: str",
        "[].saved: int",
        "[].sparse: int",
        "[].ssl_fingerprint: str",
    }
)
# What copying and wget say of speed and time.
CHATTER = re.compile(
    r"transferred |--\d{4}-|Connecting to|HTTP request|Length: |Saving to|\s+0K |\d{4}-\d\d-\d\d "
)

DEVICES = (
    device("0000:00:00.0", "060000", "8086:9b54", 0, None, "1043:8694"),
    device("0000:00:1f.6", "020000", "8086:0d4d", 10, "e1000e", "1043:8672"),
    device("0000:01:00.0", "020000", "15b3:101d", 20, "mlx5_core", "15b3:0043"),
    device("0000:02:00.0", "030000", "10de:2204", 13, "nouveau", "1458:403b"),
    device("0000:02:00.1", "040300", "10de:1aef", 13, "snd_hda_intel", "1458:403b"),
    device("0000:03:00.0", "030000", "10de:2204", 14, "nouveau", "1458:403b"),
    device("0000:03:00.1", "040300", "10de:1aef", 14, "snd_hda_intel", "1458:403b"),
)


class _Images(BaseHTTPRequestHandler):
    """The file server that the recording's host downloaded from."""

    files: ClassVar[dict[str, bytes]] = {}

    def _send(self, *, body: bool) -> None:
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if body and content is not None:
            self.wfile.write(content)

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="module")
def image_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cloud = tmp_path_factory.mktemp("images") / "cloud.qcow2"
    make_qcow2(cloud, 300 << 20, 196_616)
    _Images.files = {"/tiny.iso": ISO, "/cloud.qcow2": cloud.read_bytes()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Images)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@dataclass
class Replay:
    """Sends the recorded requests in order, with our own ids in place of the recorded ones."""

    folder: Path
    image_server: str
    known: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.guests = FakeGuests(deaf={102})
        hypervisor = FakeHypervisor(
            devices={each.address: each for each in DEVICES},
            cpus=20,
            memory=25_276_510_208,
            boot_mode="legacy-bios",
        )
        self.app = create_app(
            self.folder,
            self.guests,
            hypervisor,
            node="pve1",
            storages=(
                Storage("local", "dir", ("iso", "import", "vztmpl", "snippets", "backup")),
                Storage("local-zfs", "zfspool", ("rootdir", "images")),
            ),
            address="192.0.2.10/24",
        )
        self.password = (self.folder / "root-password").read_text().strip()
        self.ticket: dict[str, str] = {}
        self.known = {RECORDED_SERVER: self.image_server, RECORDED_ISO_SUM: ISO_SUM}

    def ours(self, text: str) -> str:
        for recorded, own in self.known.items():
            text = text.replace(recorded, own)
        return text

    def learn(self, recorded: Any, own: Any) -> None:
        """Remember our value of what the recording calls differently, wherever it appears."""
        if isinstance(recorded, dict) and isinstance(own, dict):
            for key in recorded.keys() & own.keys():
                if key == "digest" and isinstance(own[key], str):
                    self.known[recorded[key]] = own[key]
                self.learn(recorded[key], own[key])
        elif isinstance(recorded, str) and isinstance(own, str) and recorded.startswith("UPID:"):
            self.known[recorded] = own

    def _headers(self, exchange: dict[str, Any]) -> dict[str, str]:
        refused = exchange["status"] == 401 and exchange["reason"] == "Authentication failed!"
        if exchange["auth"] == "token":
            name = exchange["token"]
            return {
                "authorization": f"PVEAPIToken={name}={'wrong' if refused else self.secrets.get(name, '')}"
            }
        if exchange["auth"] == "none":
            return {}
        csrf = "" if "csrf" in exchange["reason"] else self.ticket["CSRFPreventionToken"]
        ticket = "PVE:nobody" if refused else self.ticket["ticket"]
        return {"cookie": f"PVEAuthCookie={ticket}", "csrfpreventiontoken": csrf}

    def send(self, index: int, exchange: dict[str, Any]) -> Answer:
        for method, path in UNRECORDED.get(index, ()):
            headers = {"cookie": f"PVEAuthCookie={self.ticket['ticket']}"}
            headers["csrfpreventiontoken"] = self.ticket["CSRFPreventionToken"]
            self.app.state.lab.tasks.wait(request(self.app, method, path, headers=headers).data)
        path, query = self.ours(exchange["path"]), exchange["query"] | QUERIES.get(index, {})
        given = exchange["form"] if isinstance(exchange["form"], dict) else {}
        form = {name: self.ours(value) for name, value in given.items()}
        query = {name: self.ours(value) for name, value in query.items()}
        if form.get("password") == "***" and path == "/access/ticket":
            form["password"] = self.password if exchange["status"] == 200 else "wrong"
        raw, kind = None, "application/x-www-form-urlencoded"
        if len(form) == 1 and next(iter(form)).startswith("{"):
            raw, kind = next(iter(form)).encode(), "application/json"
        if exchange["form"] == "<multipart>":
            raw, kind = b"", "multipart/form-data; boundary=x"
        self._await(path, exchange)
        answer = request(
            self.app,
            exchange["method"],
            path,
            query=query,
            form=form,
            raw=raw,
            content_type=kind,
            headers=self._headers(exchange),
        )
        if path == "/access/ticket" and answer.status == 200:
            self.ticket = answer.data
        if answer.status == 200 and isinstance(answer.data, dict) and "full-tokenid" in answer.data:
            self.secrets[answer.data["full-tokenid"]] = answer.data["value"]
        if isinstance(exchange["body"], dict):
            self.learn(exchange["body"], answer.body)
        return answer

    def _await(self, path: str, exchange: dict[str, Any]) -> None:
        """Wait for our task where the recorded one had ended, and before what the recorder did after one."""
        lab = self.app.state.lab
        if exchange["method"] == "GET" and not path.endswith("/status"):
            for task in lab.tasks.newest_first()[:3]:
                lab.tasks.wait(task.upid, 20)
        match = re.search(r"(UPID:[^/]+)/status", path)
        if match:
            lab.tasks.wait(match[1], 20)
        if exchange["method"] != "GET":
            for task in lab.tasks.newest_first()[:3]:
                lab.tasks.wait(task.upid, 20)


def _problem(replay: Replay, exchange: dict[str, Any], answer: Answer) -> str | None:
    """Say what differs between a recorded and our answer, or None."""
    wanted = (exchange["status"], replay.ours(exchange["reason"]))
    if (answer.status, answer.reason) != wanted:
        return f"{(answer.status, answer.reason)} instead of {wanted}"
    recorded = exchange["body"] if isinstance(exchange["body"], dict) else {}
    if answer.errors != recorded.get("errors", {}):
        return f"errors {answer.errors} instead of {recorded.get('errors')}"
    if answer.status != 200:
        return None
    return _data_problem(replay, exchange["path"], recorded["data"], answer.data)


def _data_problem(replay: Replay, path: str, recorded: Any, own: Any) -> str | None:
    if type(recorded) is not type(own):
        return f"{own!r} instead of {recorded!r}"
    if path.endswith("/status") and "/tasks/" in path and recorded["status"] == "running":
        return None  # ours may have ended
    wanted, got = _comparable(replay, path, recorded, own)
    if wanted is not None:
        return None if got == wanted else f"{got!r} instead of {wanted!r}"
    missing = sorted(_shape(recorded) - _shape(own) - HOST_ONLY)
    return f"lacks {missing}" if missing else None


def _comparable(replay: Replay, path: str, recorded: Any, own: Any) -> tuple[Any, Any]:
    """Return what must be equal of both answers, or None where only their keys are compared."""
    if path.endswith("/status") and "/tasks/" in path:
        return replay.ours(recorded["exitstatus"]), own["exitstatus"]
    if path.endswith("/log"):
        wanted = [replay.ours(each["t"]) for each in recorded if not CHATTER.match(each["t"])]
        return wanted, [each["t"] for each in own if not CHATTER.match(each["t"])]
    if re.search(r"/qemu/\d+/config$", path) and isinstance(recorded, dict):
        return _masked(recorded), _masked(own)
    if path.endswith("/dump") or path == "/cluster/nextid":
        return recorded, own
    if "/hardware/pci" in path:
        return [{key: each[key] for key in each if not key.endswith("_name")} for each in recorded], own
    return None, None


def _masked(config: dict[str, Any]) -> dict[str, Any]:
    plain = {key: None if key in GENERATED else value for key, value in config.items()}
    return {
        key: re.sub(r"BC:24:11(:[0-9A-F]{2}){3}", "MAC", value) if isinstance(value, str) else value
        for key, value in plain.items()
    }


def _shape(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys with their types, list items folded into one."""
    if isinstance(value, dict):
        pairs = ((f"{path}.{'tapN' if key.startswith('tap') else key}", each) for key, each in value.items())
        return set().union(*(_shape(each, name) for name, each in pairs))
    if isinstance(value, list):
        return set().union(*(_shape(each, f"{path}[]") for each in value))
    return {f"{path}: {type(value).__name__}"}


def _reviewed() -> dict[int, str]:
    """Read the list: `number method path: reason`."""
    lines = [line for line in UNSUPPORTED.read_text().splitlines() if line and not line.startswith("#")]
    return {int(line.split()[0]): line for line in lines}


def test_recorded_exchanges_are_answered_alike(tmp_path: Path, image_server: str) -> None:
    with gzip.open(RECORDING, "rt") as file:
        exchanges = [json.loads(line) for line in file]
    replay = Replay(tmp_path, image_server)
    problems: dict[int, str] = {}
    for index, exchange in enumerate(exchanges):
        found = _problem(replay, exchange, replay.send(index, exchange))
        if found is not None:
            problems[index] = f"{index} {exchange['method']} {exchange['path']}: {found}"
    reviewed = _reviewed()
    assert len(reviewed) <= MOST_UNSUPPORTED, "the list only shrinks: let the lab answer as PVE does"
    unlisted = [text for index, text in problems.items() if index not in reviewed]
    passing = [line for index, line in reviewed.items() if index not in problems]
    assert not unlisted, "\n".join(unlisted)
    assert not passing, "supported now, take it off the list:\n" + "\n".join(passing)
    assert len(exchanges) - len(problems) >= 200
