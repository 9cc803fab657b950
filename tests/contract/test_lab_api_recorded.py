"""Replays the exchanges recorded from a real Proxmox VE 9.2.11 against the lab's API."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

from provision.lab.api.app import create_app
from provision.lab.api.configs import VmConfig
from provision.lab.api.storages import Storage
from provision.lab.contracts import PciDevice
from tests.unit.lab_api.client import Answer, request
from tests.unit.lab_api.fakes import FakeGuests, FakeHypervisor, device, make_qcow2

SHARED = Path(__file__).resolve().parents[3] / "shared" / "pve-api"
UNSUPPORTED = Path(__file__).with_name("recorded_unsupported.txt")
MOST_UNSUPPORTED = 14
"""How long the reviewed list may be: when it shrinks, this does; it never grows."""

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="../shared/pve-api is absent")

ISO = bytes(3_000_000)
ISO_SUM = hashlib.sha256(ISO).hexdigest()
RECORDED_ISO_SUM = "bc911357643846cb58e64e09101c99f16d1be4b1058c6065c4559b7d61239f56"
RECORDED_SERVERS = {"http://192.0.2.10:8080": "", "http://192.168.100.1:8000": ""}

# Requests that the real server got between two recorded exchanges (their effect shows in what follows).
UNRECORDED: dict[int, tuple[tuple[str, str, dict[str, str]], ...]] = {
    39: (
        ("PUT", "/nodes/pve1/qemu/102/config", {"cores": "8"}),
        ("POST", "/nodes/pve1/qemu/102/status/start", {}),
    ),
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
    _Images.files = {
        "/tiny.iso": ISO,
        "/cloud.qcow2": cloud.read_bytes(),
        "/noble.img": cloud.read_bytes(),
    }
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
    node: str = "pve1"
    devices: tuple[PciDevice, ...] = DEVICES
    unrecorded: Mapping[int, tuple[tuple[str, str, dict[str, str]], ...]] = field(default_factory=dict)
    queries: Mapping[int, dict[str, str]] = field(default_factory=dict)
    stuck: Mapping[int, int] = field(default_factory=dict)
    """VMs whose worker hung when an exchange came: their lock was held."""
    by_value: int = 0
    untold: str = ""
    """Our UPID of a request whose recorded answer is not given: the next unknown recorded one is its own."""
    known: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.guests = FakeGuests(deaf={102})
        hypervisor = FakeHypervisor(
            devices={each.address: each for each in self.devices},
            cpus=20,
            memory=25_276_510_208,
            boot_mode="legacy-bios",
        )
        self.app = create_app(
            self.folder,
            self.guests,
            hypervisor,
            node=self.node,
            storages=(
                Storage("local", "dir", ("iso", "import", "vztmpl", "snippets", "backup")),
                Storage("local-zfs", "zfspool", ("rootdir", "images")),
            ),
            address="192.0.2.10/24",
        )
        self.password = (self.folder / "root-password").read_text().strip()
        self.ticket: dict[str, str] = {}
        self.known = {**dict.fromkeys(RECORDED_SERVERS, self.image_server), RECORDED_ISO_SUM: ISO_SUM}

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
        reason = exchange["reason"] or ""
        refused = exchange["status"] == 401 and reason == "Authentication failed!"
        if exchange["auth"] == "token":
            name = exchange["token"]
            return {
                "authorization": f"PVEAPIToken={name}={'wrong' if refused else self.secrets.get(name, '')}"
            }
        if exchange["auth"] == "none":
            return {}
        csrf = "" if "csrf" in reason else self.ticket["CSRFPreventionToken"]
        ticket = "PVE:nobody" if refused else self.ticket["ticket"]
        return {"cookie": f"PVEAuthCookie={ticket}", "csrfpreventiontoken": csrf}

    def _before(self, index: int) -> None:
        """Do what the recorder did between two recorded exchanges."""
        for method, path, form in self.unrecorded.get(index, ()):
            headers = {"cookie": f"PVEAuthCookie={self.ticket['ticket']}"}
            headers["csrfpreventiontoken"] = self.ticket["CSRFPreventionToken"]
            answer = request(self.app, method, path, form=form, headers=headers)
            if answer.data:
                self.app.state.lab.tasks.wait(answer.data)
        if index in self.stuck:
            self._hang(self.stuck[index])

    def send(self, index: int, exchange: dict[str, Any]) -> Answer:
        self._before(index)
        self._learn_untold(unquote(exchange["path"]))
        path, query = self.ours(unquote(exchange["path"])), exchange["query"] | self.queries.get(index, {})
        given = exchange["form"] if isinstance(exchange["form"], dict) else {}
        form = {name: self.ours(value) for name, value in given.items()}
        query = {name: self.ours(value) for name, value in query.items()}
        if form.get("password") == "***" and path == "/access/ticket":
            form["password"] = self.password if exchange["status"] == 200 else "wrong"
        raw, kind = self._body(exchange, form)
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
        self._keep(path, exchange, answer)
        return answer

    @staticmethod
    def _body(exchange: dict[str, Any], form: dict[str, str]) -> tuple[bytes | None, str]:
        raw, kind = None, "application/x-www-form-urlencoded"
        if len(form) == 1 and next(iter(form)).startswith("{"):
            raw, kind = next(iter(form)).encode(), "application/json"
        if exchange["form"] == "<multipart>":
            raw, kind = b"", "multipart/form-data; boundary=x"
        if exchange.get("raw"):
            raw, kind = exchange["raw"].encode(), exchange["ctype"]
        return raw, kind

    def _keep(self, path: str, exchange: dict[str, Any], answer: Answer) -> None:
        """Keep what later requests need of an answer."""
        if path == "/access/ticket" and answer.status == 200:
            self.ticket = answer.data
        if answer.status == 200 and isinstance(answer.data, dict) and "full-tokenid" in answer.data:
            self.secrets[answer.data["full-tokenid"]] = answer.data["value"]
        if isinstance(exchange["body"], dict):
            self.learn(exchange["body"], answer.body)
        elif exchange["status"] is None and answer.status == 200 and str(answer.data).startswith("UPID:"):
            self.untold = answer.data

    def _hang(self, vmid: int) -> None:
        configs = self.app.state.lab.configs
        configs.save(VmConfig(vmid, {"lock": "create"}))
        lock = configs._locks[vmid] = threading.RLock()
        held = threading.Event()

        def worker() -> None:
            lock.acquire()
            held.set()
            threading.Event().wait()  # for ever: another thread would get the name of one that ended

        threading.Thread(target=worker, daemon=True).start()
        held.wait()

    def _learn_untold(self, path: str) -> None:
        match = re.search(r"UPID:[^/]+", path)
        if match is not None and match[0] not in self.known and self.untold:
            self.known[match[0]], self.untold = self.untold, ""

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
    compare = next((how for form, how in COMPARED if re.search(form, path)), None)
    if isinstance(recorded, str) and recorded.startswith("UPID:"):
        compare = _task_words
    if recorded is None:
        compare = _same
    if compare is None or "fake zfs" in str(recorded):  # the recording's storage was a stand-in
        missing = sorted(_shape(recorded) - _shape(own) - HOST_ONLY)
        return f"lacks {missing}" if missing else None
    replay.by_value += 1
    wanted, got = compare(_ours(replay, recorded), own)
    return None if got == wanted else f"{got!r} instead of {wanted!r}"


def _ours(replay: Replay, value: Any) -> Any:
    return json.loads(replay.ours(json.dumps(value)))


Pair = tuple[Any, Any]
"""What must be equal of both answers."""


def _same(recorded: Any, own: Any) -> Pair:
    return recorded, own


def _task_words(recorded: str, own: str) -> Pair:
    return recorded.split(":")[5:8], own.split(":")[5:8]


def _exit_status(recorded: Any, own: Any) -> Pair:
    keys = ("exitstatus", "type", "id", "user", "status")
    return {key: recorded.get(key) for key in keys}, {key: own.get(key) for key in keys}


def _log(recorded: Any, own: Any) -> Pair:
    first, second = ([row["t"] for row in rows if not CHATTER.match(row["t"])] for rows in (recorded, own))
    return first, second


def _config(recorded: Any, own: Any) -> Pair:
    return _masked(recorded), _masked(own)


def _pending(recorded: Any, own: Any) -> Pair:
    def rows(answer: Any) -> dict[str, Any]:
        return {
            row["key"]: _masked({row["key"]: row.get("value")})
            | {name: row[name] for name in ("pending", "delete") if name in row}
            for row in answer
        }

    return rows(recorded), rows(own)


FIGURES = frozenset(
    {"cpu", "mem", "memhost", "disk", "netin", "netout", "pid", "uptime", "diskread", "diskwrite"}
)


def _state(recorded: Any, own: Any) -> Pair:
    """Compare one VM's state without its load; the lab's host may lack keys of newer kernels."""
    left_out = {*FIGURES, *(key for key in recorded if key.startswith("pressure") or key == "nics")}
    return (
        {key: value for key, value in recorded.items() if key not in left_out},
        {key: value for key, value in own.items() if key in recorded and key not in left_out},
    )


def _mappings(recorded: Any, own: Any) -> Pair:
    """Compare mappings without their digest; the recording's host had others, too."""
    rows = [recorded, own] if isinstance(recorded, dict) else [*recorded, *own]
    for row in rows:
        row.pop("digest", None)
    if isinstance(recorded, list):
        names = {row["id"] for row in own}
        recorded = [row for row in recorded if row["id"] in names]
    return recorded, own


def _functions(recorded: Any, own: Any) -> Pair:
    return [{key: row[key] for key in row if not key.endswith("_name")} for row in recorded], own


def _rights(recorded: Any, own: Any) -> Pair:
    return recorded, {path: own[path] for path in recorded if path in own}


COMPARED: tuple[tuple[str, Callable[[Any, Any], Pair]], ...] = (
    (r"/tasks/[^/]+/status$", _exit_status),
    (r"/tasks/[^/]+/log$", _log),
    (r"/qemu/\d+/config$", _config),
    (r"/qemu/\d+/pending$", _pending),
    (r"/qemu/\d+/status/current$", _state),
    (r"/qemu/\d+/cloudinit/dump$|^/cluster/nextid$", _same),
    (r"/hardware/pci$", _functions),
    (r"^/cluster/mapping/pci", _mappings),
    (r"^/access/permissions$", _rights),
)
"""How answers are compared by value, by path; all others hold their host's own figures."""


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


def _reviewed(recording: str) -> dict[int, str]:
    """Read the list: `recording number method path: reason`."""
    lines = [
        line.split(maxsplit=2) for line in UNSUPPORTED.read_text().splitlines() if line[:1] not in {"", "#"}
    ]
    return {int(number): rest for name, number, rest in lines if name == recording}


def _device(row: dict[str, Any]) -> PciDevice:
    pair = [
        row[key].removeprefix("0x") for key in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    ]
    words = (row["class"].removeprefix("0x"), f"{pair[0]}:{pair[1]}", row["iommugroup"], None)
    return device(row["id"], *words, f"{pair[2]}:{pair[3]}")


def _first(tmp_path: Path, image_server: str, _exchanges: list[dict[str, Any]]) -> Replay:
    return Replay(tmp_path, image_server, unrecorded=UNRECORDED, queries=QUERIES)


def _second(tmp_path: Path, image_server: str, exchanges: list[dict[str, Any]]) -> Replay:
    """Return a host with the cards and the VMs of the second recording's."""
    rows = next(each["body"]["data"] for each in exchanges if each["path"] == "/nodes/pve/hardware/pci")
    replay = Replay(tmp_path, image_server, node="pve", devices=tuple(map(_device, rows)))
    configs = replay.app.state.lab.configs
    configs.save(VmConfig(900, {"name": "alien", "tags": "theirs", "serial0": "socket"}))
    configs.save(VmConfig(902, {"name": "base", "template": "1"}))
    replay.stuck = {56: 706}
    return replay


@pytest.mark.parametrize(("recording", "make"), [("", _first), ("-b", _second)], ids=["first", "second"])
def test_recorded_exchanges_are_answered_alike(
    recording: str,
    make: Callable[[Path, str, list[dict[str, Any]]], Replay],
    tmp_path: Path,
    image_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("provision.lab.api.configs.LOCK_SECONDS", 0.1)
    with gzip.open(SHARED / f"recorded-9.2.11{recording}.jsonl.gz", "rt") as file:
        exchanges = [json.loads(line) for line in file]
    replay = make(tmp_path, image_server, exchanges)
    problems: dict[int, str] = {}
    answered = 0
    for index, exchange in enumerate(exchanges):
        answer = replay.send(index, exchange)
        if exchange["status"] is None:  # its answer was not given
            continue
        answered += 1
        found = _problem(replay, exchange, answer)
        if found is not None:
            problems[index] = f"{index} {exchange['method']} {exchange['path']}: {found}"
    reviewed = _reviewed(f"recorded-9.2.11{recording}")
    unlisted = [text for index, text in problems.items() if index not in reviewed]
    passing = [line for index, line in reviewed.items() if index not in problems]
    assert not unlisted, "\n".join(unlisted)
    assert not passing, "supported now, take it off the list:\n" + "\n".join(passing)
    assert answered - len(problems) >= (130 if recording else 265)
    assert replay.by_value >= (85 if recording else 175), "fewer bodies are compared by value than before"


def test_the_list_of_unsupported_exchanges_only_shrinks() -> None:
    lines = [line for line in UNSUPPORTED.read_text().splitlines() if line[:1] not in {"", "#"}]
    assert len(lines) <= MOST_UNSUPPORTED
