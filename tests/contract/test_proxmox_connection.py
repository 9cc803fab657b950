"""The pinned HTTPS connection against a small TLS server on loopback that misbehaves on demand."""

from __future__ import annotations

import hashlib
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.connections import https
from provision.connections.contracts import ApiError, HttpsEndpoint
from provision.connections.https import PveConnection
from provision.values.errors import Permanent, Refused, Transient, UnknownOutcome
from provision.values.outcomes import ExitCode
from tests.contract.test_lab_api_proxmoxer import make_certificate

SECRET = "1f2e3d4c-planted-token-secret"


@dataclass
class Server:
    port: int
    fingerprint: str
    answers: list[tuple[int, str, object]] = field(default_factory=list)
    seen: list[tuple[str, str, str, str]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    context: ssl.SSLContext = field(default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def connection(self, fingerprint: str = "", port: int = 0, timeout: float = 5.0) -> PveConnection:
        url = f"https://127.0.0.1:{port or self.port}"
        endpoint = HttpsEndpoint(url, "prov@pve!lab", SecretStr(SECRET), fingerprint or self.fingerprint)
        return PveConnection(endpoint, "pve", timeout)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(pair: tuple[Path, Path]) -> Iterator[Server]:
    der = ssl.PEM_cert_to_DER_cert(pair[0].read_text())
    digest = hashlib.sha256(der).hexdigest().upper()
    made = Server(0, ":".join(digest[at : at + 2] for at in range(0, 64, 2)))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            made.seen.append((self.command, self.path, body, self.headers.get("Authorization", "")))
            status, reason, data = made.answers.pop(0) if made.answers else (200, "OK", {"data": None})
            if status < 0:
                made.gate.wait(10)
            if status <= 0:
                self.close_connection = True
                return
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status, reason)
            if status == 302:
                self.send_header("Location", "https://127.0.0.1:1/")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: refused handshakes are the point."""

    httpd = Quiet(("127.0.0.1", 0), Handler)
    made.context.load_cert_chain(*pair)
    httpd.socket = made.context.wrap_socket(httpd.socket, server_side=True)
    threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
    made.port = httpd.server_address[1]
    yield made
    httpd.shutdown()
    httpd.server_close()


def test_a_request_carries_the_token_and_plain_parameters(server: Server) -> None:
    server.answers = [(200, "OK", {"data": [1]})]
    api = server.connection()
    sent = {
        "onboot": True,
        "balloon": 0,
        "pool": None,
        "map": ["a=1", "b=2"],
        "sshkeys": "x%20y",
        "off": False,
    }
    assert api.request("PUT", "/nodes/pve/qemu/1/config", sent) == [1]
    (method, path, body, login) = server.seen[0]
    assert (method, path) == ("PUT", "/api2/json/nodes/pve/qemu/1/config")
    assert body == "onboot=1&balloon=0&map=a%3D1&map=b%3D2&sshkeys=x%2520y&off=0"
    assert login == f"PVEAPIToken=prov@pve!lab={SECRET}"
    assert api.requests == 1


def test_reads_and_deletes_put_parameters_into_the_query(server: Server) -> None:
    api = server.connection()
    api.request("GET", "/cluster/mapping/pci", {"check-node": "pve"})
    api.request("DELETE", "/nodes/pve/storage/local/content/local:import%2Fx.qcow2", {"delay": 5})
    assert [each[1] for each in server.seen] == [
        "/api2/json/cluster/mapping/pci?check-node=pve",
        "/api2/json/nodes/pve/storage/local/content/local:import%2Fx.qcow2?delay=5",
    ]


def test_another_certificate_is_refused_before_anything_is_sent(server: Server) -> None:
    pinned = ":".join(["AB"] * 32)
    with pytest.raises(Refused) as caught:
        server.connection(pinned).request("GET", "/version")
    (problem,) = caught.value.diagnostics
    assert (problem.code, caught.value.exit_code) == ("CERTIFICATE_UNKNOWN", ExitCode.REFUSED)
    assert problem.evidence == (f"pinned: {pinned}", f"actual: {server.fingerprint}")
    assert server.seen == []


def test_a_certificate_that_changes_after_the_plan_gets_no_request(server: Server, tmp_path: Path) -> None:
    """Neither a change nor the token goes to who answers now, and the answer is the change of the pin."""
    server.answers = [(200, "OK", {"data": []}), (0, "", None)]
    api = server.connection()
    api.request("GET", "/nodes/pve/qemu")
    server.context.load_cert_chain(*make_certificate(tmp_path))
    with pytest.raises(Transient):
        api.request("GET", "/nodes/pve/qemu")  # the connection of the plan ends
    before = list(server.seen)
    for method in ("GET", "POST", "PUT", "DELETE"):
        with pytest.raises(Refused) as caught:
            api.request(method, "/nodes/pve/qemu/100/config", {"cores": 1})
        assert caught.value.diagnostics[0].code == "CERTIFICATE_UNKNOWN"
    assert server.seen == before


def test_the_pin_is_all_that_counts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    server.connection(server.fingerprint.lower()).request("GET", "/version")
    assert len(server.seen) == 1


ANSWERS: list[tuple[str, tuple[int, str, object], type[Exception], str]] = [
    ("GET", (401, "authentication failure", {"data": None}), Permanent, "API_AUTH_FAILED"),
    ("GET", (595, "Connection refused", {"data": None}), Transient, "API_UNREACHABLE"),
    ("POST", (595, "Connection refused", {"data": None}), Transient, "API_UNREACHABLE"),
    ("POST", (504, "Gateway Time-out", {"data": None}), UnknownOutcome, "API_ANSWER_LOST"),
    ("GET", (596, "Broken pipe", {"data": None}), Transient, "API_UNREACHABLE"),
    ("POST", (596, "Broken pipe", {"data": None}), UnknownOutcome, "API_ANSWER_LOST"),
    ("POST", (599, "Too many redirections", {"data": None}), UnknownOutcome, "API_ANSWER_LOST"),
    ("GET", (0, "", None), Transient, "API_UNREACHABLE"),
    ("POST", (0, "", None), UnknownOutcome, "API_ANSWER_LOST"),
    ("DELETE", (0, "", None), UnknownOutcome, "API_ANSWER_LOST"),
    ("GET", (200, "OK", b"<html>"), Permanent, "API_UNREADABLE"),
    ("GET", (200, "OK", {"hello": 1}), Permanent, "API_UNREADABLE"),
    ("GET", (302, "Found", {"data": None}), Permanent, "API_UNREADABLE"),
]


@pytest.mark.parametrize(("method", "answer", "error", "code"), ANSWERS)
def test_what_went_wrong_decides_whether_it_may_be_tried_again(
    server: Server, method: str, answer: tuple[int, str, object], error: type[Permanent], code: str
) -> None:
    server.answers = [answer]
    with pytest.raises(error) as caught:
        server.connection().request(method, "/nodes/pve/qemu")
    assert [each.code for each in caught.value.diagnostics] == [code]


def test_a_rejected_token_names_the_command_that_renews_it(server: Server) -> None:
    server.answers = [(401, "authentication failure", {"data": None})]
    connection = server.connection()
    with pytest.raises(Permanent) as caught:
        connection.request("GET", "/version")
    name = connection._endpoint.token_id.partition("!")[2]
    command = f"provision bootstrap root@127.0.0.1 --name {name} --rotate --out {name}.new.yaml"
    assert command in caught.value.diagnostics[0].remedy


def test_a_refusal_has_the_reason_and_the_fields(server: Server) -> None:
    body = {"data": None, "errors": {"memory": "value must be at least 16\n"}, "message": "x"}
    server.answers = [(400, "Parameter verification failed.", body)]
    with pytest.raises(ApiError) as caught:
        server.connection().request("POST", "/nodes/pve/qemu", {"memory": 1})
    assert (caught.value.status, caught.value.reason) == (400, "Parameter verification failed.")
    assert str(caught.value).endswith("; memory: value must be at least 16")


def test_nobody_listening_is_transient_for_writes_too(server: Server) -> None:
    with pytest.raises(Transient):
        server.connection(port=1).request("POST", "/nodes/pve/qemu")


def test_an_answer_that_never_comes_is_unknown(server: Server) -> None:
    server.answers = [(-1, "", None)]
    with pytest.raises(UnknownOutcome):
        server.connection(timeout=2.0).request("POST", "/nodes/pve/qemu")
    server.gate.set()


def test_secrets_are_in_no_log_and_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers = [(200, "OK", {"data": None}), (500, "no", {"data": None}), (401, "no", {"data": None})]
    api = server.connection()
    texts = []
    api.request("POST", "/nodes/pve/qemu", {"cipassword": SECRET})
    for _ in range(2):
        with pytest.raises((ApiError, Permanent)) as caught:
            api.request("POST", "/nodes/pve/qemu", {"cipassword": SECRET})
        texts.append(repr(caught.value) + str(caught.value))
    assert SECRET not in caplog.text + "".join(texts) + repr(api.__dict__)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"data":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deep"),
        (b'{"data":' + b"9" * 5_000 + b"}", "not"),
        (b'{"data":{"name":"\\ud800"}}', "not Unicode text"),
        (b'{"data":"' + b"x" * 70_000 + b'"}', "larger than"),
    ],
)
def test_an_answer_without_measure_is_this_apis_alone(
    server: Server, body: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "LARGEST", 500_000 if b"[" in body else 65_536)
    connection = server.connection()
    server.answers += [(200, "OK", body), (200, "OK", body), (200, "OK", {"data": "\u00fc"})]
    with pytest.raises(Permanent, match=words):
        connection.request("GET", "/nodes")
    with pytest.raises((UnknownOutcome, Permanent)):
        connection.request("POST", "/nodes", {"a": 1})
    assert connection.request("GET", "/nodes") == "\u00fc"


def test_an_answer_that_drips_has_a_deadline_for_the_whole(server: Server) -> None:
    endpoint = HttpsEndpoint(
        f"https://127.0.0.1:{server.port}", "prov@pve!lab", SecretStr(SECRET), server.fingerprint
    )
    # long enough for a connection to be made beside any load: the server drips until its gate opens
    connection = PveConnection(endpoint, "pve", 5.0, total=2.0)
    server.answers += [(-1, "", None), (-1, "", None), (200, "OK", {"data": 1})]
    with pytest.raises(Transient, match="API_UNREACHABLE"):
        connection.request("GET", "/nodes")
    with pytest.raises(UnknownOutcome, match="API_ANSWER_LOST"):
        connection.request("POST", "/nodes", {"a": 1})
    server.gate.set()
    connection = PveConnection(endpoint, "pve", 5.0, total=60.0)
    assert connection.request("GET", "/nodes") == 1
