"""Servers that answer what no honest one does: each answer is a diagnostic, in a bounded time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.connections import download
from provision.connections.contracts import HttpsEndpoint, KubeEndpoint, WebEndpoint
from provision.connections.download import answer_of, digest_of, stored
from provision.connections.fetch import fetch_file
from provision.connections.https import PveConnection
from provision.connections.kube import HttpsKubeConnection
from provision.connections.registry import Repository, write_image
from provision.connections.registry_logins import Logins
from provision.connections.web import HttpsWebConnection
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, ProvisionError, Transient, UnknownOutcome
from tests.contract.certificates import Authority

Answer = Callable[[str], bytes]
DEEP = b"[" * 200_000
HALF_PAIR = b'{"data": [{"name": "\\ud800"}]}'


def http(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@contextmanager
def serving(
    answer: Answer, context: ssl.SSLContext | None = None, requests: list[bytes] | None = None
) -> Iterator[int]:
    """Answer each connection with raw bytes for the path that it asks, and note the requests."""

    def serve() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(raw, server_side=True) if context else raw as connection:
                    request = connection.recv(65536)
                    if requests is not None:
                        requests.append(request)
                    path = request.split(b" ")[1].decode()
                    connection.sendall(answer(path))
            except (OSError, IndexError):
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("place", ["https://[::1", "http://a..b/x", "http://\xff\xfe/", "http://a\0b/"])
def test_a_redirect_to_no_address_is_refused(place: str) -> None:
    reply = http(b"", f"Location: {place}", "Content-Length: 0", status="302 Found")
    with serving(lambda _: reply) as port, pytest.raises(ProvisionError, match="DOWNLOAD_"):
        digest_of(f"http://127.0.0.1:{port}/file", Cancel())


@pytest.mark.parametrize(
    ("user", "headers", "sent"),
    [
        ("", {}, []),
        ("", {"Authorization": "Bearer ours"}, [b"Bearer ours"]),
        ("me:p%40ss@", {}, [b"Basic bWU6cEBzcw=="]),
    ],
)
def test_passwords_of_netrc_go_to_no_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, headers: dict[str, str], sent: list[bytes]
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password planted\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    requests: list[bytes] = []
    with serving(lambda _: http(b"x"), requests=requests) as port:
        answer_of(f"http://{user}127.0.0.1:{port}/file", Cancel(), 10, headers)
    (request,) = requests
    lines = [line.partition(b": ") for line in request.split(b"\r\n")]
    assert [value for name, _, value in lines if name.lower() == b"authorization"] == sent


def test_a_length_of_thousands_of_digits_is_no_length() -> None:
    with serving(lambda _: http(b"x", f"Content-Length: {'9' * 5000}")) as port:
        assert digest_of(f"http://127.0.0.1:{port}/file", Cancel())[1] == 1


def test_a_document_in_single_bytes_costs_no_more_than_its_bytes() -> None:
    body = b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"  # added up for each of them, it would take minutes
    with serving(lambda _: http(body, "Transfer-Encoding: chunked")) as port:
        assert len(answer_of(f"http://127.0.0.1:{port}/file", Cancel(), 1 << 20, {})[2]) == 200_000


def manifest_of(*sizes: int, blob: bytes = b"layer") -> bytes:
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    config, *layers = [{"digest": digest, "size": size} for size in sizes]
    return json.dumps({"config": config, "layers": layers}).encode()


def image_from(manifest: bytes, blob: bytes, folder: Path) -> None:
    def answer(path: str) -> bytes:
        return http(manifest if "/manifests/" in path else blob)

    with serving(answer) as port:
        repository = Repository(f"http://127.0.0.1:{port}/v2/tools/shell", Cancel(), Logins())
        sha256 = hashlib.sha256(manifest).hexdigest()
        write_image(repository, ["registry.example/a:1"], sha256, "amd64", folder, folder / "a.tar")


@pytest.mark.parametrize("manifest", [DEEP, b"9" * 5000, manifest_of(-1, -1), b'{"manifests": [[]]}'])
def test_a_manifest_that_is_none_makes_no_image(manifest: bytes, tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="IMAGE_UNFIT"):
        image_from(manifest, b"layer", tmp_path)


def test_a_blob_ends_where_its_manifest_says(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="DOWNLOAD_WRONG"):
        image_from(manifest_of(5), b"layer" * 10_000, tmp_path)
    assert not list(tmp_path.glob("*.part"))


def test_a_layer_that_is_named_often_is_read_and_kept_once(tmp_path: Path) -> None:
    image_from(manifest_of(*range(5, 20_005)), b"layer", tmp_path)
    assert (tmp_path / "a.tar").stat().st_size < 8 << 20


@pytest.mark.parametrize("token", ["a\nb: c", "\u20ac", "\ud800", ""])
def test_a_registry_s_token_that_no_header_can_have_is_none(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens(*_: object, **__: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"token": token}).encode()

    challenge = 'WWW-Authenticate: Bearer realm="https://auth.example/token"'
    with serving(lambda _: http(b"", challenge, status="401 Unauthorized")) as port:
        repository = Repository(f"http://127.0.0.1:{port}/v2/a", Cancel(), Logins())
        repository._challenge = challenge.partition(": ")[2]
        monkeypatch.setattr("provision.connections.registry.answer_of", tokens)
        with pytest.raises(Permanent, match="needs a login"):
            repository.read("manifests/1", "*/*")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, ssl.SSLContext]:
    authority, file = Authority(), tmp_path_factory.mktemp("tls") / "server.pem"
    file.write_text("".join(authority.issue("server", "127.0.0.1")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return authority, context


@pytest.mark.parametrize(("method", "error"), [("GET", Permanent), ("POST", UnknownOutcome)])
@pytest.mark.parametrize("body", [DEEP, b"9" * 5000, HALF_PAIR, b"{"])
def test_an_answer_of_kubernetes_that_is_not_understood_is_a_diagnostic(
    tls: tuple[Authority, ssl.SSLContext], method: str, error: type[Exception], body: bytes
) -> None:
    reply = http(body, "Content-Type: application/json")
    with serving(lambda _: reply, tls[1]) as port:
        endpoint = KubeEndpoint(f"https://127.0.0.1:{port}", tls[0].pem, token=SecretStr("token"))
        with closing(HttpsKubeConnection(endpoint)) as connection, pytest.raises(error):
            connection.request(method, "/api/v1/nodes")


@pytest.mark.parametrize("token", ["\u20ac1234", "first\nsecond"])
def test_credentials_that_no_header_can_have_are_named_and_not_shown(
    tls: tuple[Authority, ssl.SSLContext], token: str
) -> None:
    kube = HttpsKubeConnection(KubeEndpoint("https://127.0.0.1:1", tls[0].pem, token=SecretStr(token)))
    web = HttpsWebConnection(WebEndpoint("https://127.0.0.1:1", "", SecretStr(token)))
    with pytest.raises(Permanent, match="KUBECONFIG_INVALID") as first:
        kube.request("GET", "/")
    with pytest.raises(Permanent, match="API_AUTH_FAILED") as second:
        web.request("GET", "/", headers={"X-API-KEY": token})
    pve = PveConnection(HttpsEndpoint("https://127.0.0.1:1", "prov@pve!lab", SecretStr(token), "AA" * 32))
    with pytest.raises(Permanent, match=r"API_AUTH_FAILED.* cannot be sent") as third:
        pve.request("GET", "/version")
    headers = {"Authorization": f"Bearer {token}"}
    with pytest.raises(Permanent, match=r"DOWNLOAD_REFUSED.* cannot be sent") as fourth:
        answer_of("http://127.0.0.1:1/file", Cancel(), 1, headers)
    shown = [caught.value.diagnostics for caught in (first, second, third, fourth)]
    assert token not in f"{shown}"
    assert token.encode("unicode_escape").decode() not in f"{shown}"


def dripping(whole: bytes, context: ssl.SSLContext | None, drip: bytes) -> Any:
    """Serve what is sent at once, then the same bytes again and again, until the client goes."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            raw, _ = listener.accept()
            with context.wrap_socket(raw, server_side=True) if context else raw as connection:
                connection.recv(65536)
                connection.sendall(whole)
                while not stop.wait(0.02):
                    connection.sendall(drip)

    @contextmanager
    def running() -> Iterator[int]:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            listener.close()

    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    return running()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS = {"in headers": (HEAD, b"X"), "in the body": (HEAD + b"\r\n", b"x")}


@pytest.mark.parametrize("place", DRIPS)
@pytest.mark.parametrize(("method", "error"), [("GET", Transient), ("POST", UnknownOutcome)])
def test_an_answer_of_kubernetes_that_drips_has_one_deadline(
    tls: tuple[Authority, ssl.SSLContext], place: str, method: str, error: type[Exception]
) -> None:
    with dripping(DRIPS[place][0], tls[1], DRIPS[place][1]) as port:
        endpoint = KubeEndpoint(f"https://127.0.0.1:{port}", tls[0].pem, token=SecretStr("token"))
        # long enough for a connection to be made beside any load; the server never ends by itself
        with closing(HttpsKubeConnection(endpoint, timeout=2.0)) as connection, pytest.raises(error):
            connection.request(method, "/api/v1/nodes")


@pytest.mark.parametrize("place", DRIPS)
def test_a_download_that_drips_is_given_up(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(download, "CHUNK_SECONDS", 2.0)
    with (
        dripping(DRIPS[place][0], None, DRIPS[place][1]) as port,
        pytest.raises(Transient, match="DOWNLOAD_FAILED"),
    ):
        answer_of(f"http://127.0.0.1:{port}/file", Cancel(), 1 << 20, {})


def test_a_piece_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CHUNK_SECONDS", 2.0)
    with (
        dripping(HEAD + b"Content-Length: 9999999\r\n\r\n", None, b"x") as port,
        pytest.raises(Transient, match="no whole answer within 2 s"),
    ):
        digest_of(f"http://127.0.0.1:{port}/file", Cancel())


def test_a_file_of_unknown_size_ends_at_the_stated_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LARGEST", 3 << 20)
    monkeypatch.setattr(download, "LARGEST_IN_MEMORY", 1 << 20)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with (
        dripping(HEAD + b"\r\n", None, b"x" * 300_000) as port,
        pytest.raises(Permanent, match=f"more than {1 << 20} bytes"),
    ):
        stored(f"http://127.0.0.1:{port}/file", "a" * 64)
    with (
        dripping(HEAD + b"\r\n", None, b"x" * 300_000) as port,
        pytest.raises(Permanent, match=f"more than {3 << 20} bytes"),
    ):
        fetch_file(f"http://127.0.0.1:{port}/file", "a" * 64, tmp_path / "image", Cancel())


def test_a_download_leaves_room_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": download.LEAST_FREE + 10})
    monkeypatch.setattr("provision.connections.download.shutil.disk_usage", lambda _folder: usage)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serving(lambda _: http(b"x" * 11)) as port:
        for fetch in (
            lambda: stored(f"http://127.0.0.1:{port}/file", "a" * 64),
            lambda: fetch_file(f"http://127.0.0.1:{port}/file", "a" * 64, tmp_path / "image", Cancel()),
        ):
            with pytest.raises(Permanent, match=r"DOWNLOAD_NO_SPACE.* has only 64 MiB left") as caught:
                fetch()
            assert caught.value.diagnostics[0].remedy
    assert not list(tmp_path.rglob(f"{'a' * 64}*.part"))


@pytest.mark.parametrize("body", [DEEP, b"9" * 5000, HALF_PAIR, b"\xff" * 4_000_000])
def test_an_answer_of_a_router_that_is_not_understood_is_short_text(
    tls: tuple[Authority, ssl.SSLContext], body: bytes
) -> None:
    certificate = ssl.get_server_certificate
    with serving(lambda _: http(body), tls[1]) as port:
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate(("127.0.0.1", port)))).hexdigest()
        endpoint = WebEndpoint(f"https://127.0.0.1:{port}", "", SecretStr("token"), digest)
        with closing(HttpsWebConnection(endpoint)) as connection:
            answer = connection.request("GET", "/").body
    assert isinstance(answer, str)
    assert len(answer.encode()) <= 3000


def test_a_cookie_that_a_router_sets_for_two_paths_is_one_of_them(
    tls: tuple[Authority, ssl.SSLContext],
) -> None:
    cookies = ("Set-Cookie: csrf_token=a; Path=/", "Set-Cookie: csrf_token=b; Path=/x")
    with serving(lambda _: http(b"{}", *cookies), tls[1]) as port:
        pem = ssl.get_server_certificate(("127.0.0.1", port))
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        endpoint = WebEndpoint(f"https://127.0.0.1:{port}", "", SecretStr("token"), digest)
        with closing(HttpsWebConnection(endpoint)) as connection:
            connection.request("GET", "/x/y")
            assert connection.cookie("csrf_token") in {"a", "b"}
            assert connection.cookie("other") == ""
