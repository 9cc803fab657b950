"""Logins of registries: Debian's docker-registry wants a password, or a token that it verifies itself."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import bcrypt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from provision.api.domains import load_inventory as load
from provision.cli.main import main
from provision.connections.registry import DOCKER_MANIFEST, digest_of_image, repository_of
from provision.connections.registry_logins import Logins, logins_of
from provision.values.cancel import Cancel
from provision.values.errors import Permanent
from provision.values.image_reference import parse_image
from tests.contract.certificates import Authority
from tests.contract.docker_registry import DOCKER, Registry, serving

PASSWORD = "correct-horse-battery"
IDENTITY = "identity-of-somebody-long"
SITE = """
version: 1
name: cluster
access: {{ user: root }}
sources:
  images: ["{host}/tools/shell:1.0"]
{logins}
k3s: {{ version: v1.35.7+k3s1, binary: ./k3s, images: ./k3s.tar }}
nodes:
  s1: {{ address: 198.51.100.1, k3s: server }}
"""
LOGINS = '  logins: {{ "{host}": {{ user: {user}, password: !secret {{ env: REGISTRY_PASSWORD }} }} }}'


class Site:
    """Files of one test: certificates, what the registry has, and the inventory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        authority = Authority()
        certificate, key = authority.issue("server", "127.0.0.1")
        self.certificate, self.key = certificate.encode(), key.encode()
        (folder / "ca.pem").write_text(authority.pem)
        (folder / "server.pem").write_text(certificate)
        (folder / "server.key").write_text(key)
        self.tls = f"{{ certificate: {folder}/server.pem, key: {folder}/server.key }}"
        (folder / "k3s").write_bytes(b"k3s")
        (folder / "k3s.tar").write_bytes(b"images of k3s")
        for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
        monkeypatch.setenv("DOCKER_CONFIG", str(folder / "docker"))
        monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
        (folder / "docker").mkdir()
        with serving(folder) as registry:
            registry.manifest("tools/shell", "1.0", DOCKER_MANIFEST, _image(registry))

    def docker(self, **config: object) -> None:
        (self.folder / "docker" / "config.json").write_text(json.dumps(config))

    def inventory(self, registry: Registry, user: str = "") -> Path:
        host = registry.url.removeprefix("https://")
        logins = LOGINS.format(host=host, user=user) if user else ""
        file = self.folder / "site.yaml"
        file.write_text(SITE.format(host=host, logins=logins))
        return file

    def digest(self, registry: Registry, user: str = "") -> str:
        reference = parse_image(f"{registry.url.removeprefix('https://')}/tools/shell:1.0")
        assert reference is not None
        logins = logins_of(load(self.inventory(registry, user)))
        return digest_of_image(repository_of(reference, {}, Cancel(), logins), reference)


def _image(registry: Registry) -> dict[str, object]:
    kinds = [f"{DOCKER}{kind}" for kind in ("container.image.v1+json", "image.rootfs.diff.tar.gzip")]
    data = (json.dumps({"os": "linux", "architecture": "amd64"}).encode(), b"layer")
    config, layer = (
        {"mediaType": kind, **registry.blob("tools/shell", content)}
        for kind, content in zip(kinds, data, strict=True)
    )
    return {"config": config, "layers": [layer]}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def by_password(site: Site) -> Iterator[Registry]:
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4, b"2a")).decode()
    (site.folder / "htpasswd").write_text(f"somebody:{hashed}\n")
    more = f"auth: {{ htpasswd: {{ realm: test, path: {site.folder}/htpasswd }} }}\n"
    with serving(site.folder, more, site.tls) as registry:
        yield registry


class TokenServer(ThreadingHTTPServer):
    """Gives tokens to who has the password or the identity token; the registry checks their signature."""

    sign: Callable[[bytes], bytes]
    certificate: bytes


class Tokens(BaseHTTPRequestHandler):
    server: TokenServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        right = base64.b64encode(f"somebody:{PASSWORD}".encode()).decode()
        self._answer(self.headers.get("Authorization") == f"Basic {right}", urlsplit(self.path).query)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(parse_qs(body)["refresh_token"] == [IDENTITY], body)

    def _answer(self, is_known: bool, query: str) -> None:
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        kind, name, actions = fields["scope"].split(":")
        now = int(time.time())
        claims = {
            "iss": "tokens",
            "aud": fields["service"],
            "sub": "somebody",
            "jti": "1",
            "iat": now,
            "nbf": now - 60,
            "exp": now + 600,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }
        header = {"typ": "JWT", "alg": "ES256", "x5c": [self.server.certificate.decode()]}
        signed = b".".join(_plain(json.dumps(part).encode()) for part in (header, claims))
        token = (signed + b"." + _plain(self.server.sign(signed))).decode()
        answer = json.dumps({"token": token} if is_known else {"details": "no"}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def _plain(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.fixture
def by_token(site: Site) -> Iterator[Registry]:
    key = load_pem_private_key(site.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)

    def sign(data: bytes) -> bytes:
        numbers = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)

    server = TokenServer(("127.0.0.1", 0), Tokens)
    server.sign = sign
    server.certificate = b"".join(site.certificate.split(b"-----")[2].split())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.folder / "server.pem", site.folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    realm = f"realm: 'https://127.0.0.1:{server.server_port}/token'"
    bundle = f"rootcertbundle: {site.folder}/ca.pem"
    more = f"auth: {{ token: {{ {realm}, service: test, issuer: tokens, {bundle} }} }}\n"
    with serving(site.folder, more, site.tls) as registry:
        yield registry
    server.shutdown()
    server.server_close()


def test_a_bundle_is_made_with_the_declared_login_which_nothing_shows(
    site: Site, by_password: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    inventory = site.inventory(by_password, "somebody")
    assert main(["bundle", str(inventory), str(site.folder / "bundle")]) == 0
    (archive,) = (site.folder / "bundle" / "containers").iterdir()
    written = (site.folder / "bundle" / "manifest.json", site.folder / "provision.lock.yaml", archive)
    assert not any(PASSWORD.encode() in file.read_bytes() for file in written)
    assert PASSWORD not in "".join(capfd.readouterr())


def test_without_a_login_the_remedy_names_where_it_is_declared(
    site: Site, by_password: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", str(site.inventory(by_password)), str(site.folder / "bundle")]) == 1
    errors = capsys.readouterr().err
    assert "needs a login" in errors
    assert "sources.logins.127.0.0.1:" in errors


@pytest.mark.parametrize("fixture", ["by_password", "by_token"])
def test_a_wrong_password_is_said_to_be_refused(
    site: Site, fixture: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Registry = request.getfixturevalue(fixture)
    monkeypatch.setenv("REGISTRY_PASSWORD", "another-password")
    with pytest.raises(Permanent) as caught:
        site.digest(registry, "somebody")
    assert "refuses the login somebody" in caught.value.diagnostics[0].summary
    assert "another-password" not in str(caught.value.diagnostics)


def test_a_password_is_changed_into_the_token_that_the_registry_wants(site: Site, by_token: Registry) -> None:
    with pytest.raises(Permanent):
        site.digest(by_token)
    assert len(site.digest(by_token, "somebody")) == 64


@pytest.mark.parametrize("fixture", ["by_password", "by_token"])
def test_what_docker_login_wrote_is_used(site: Site, fixture: str, request: pytest.FixtureRequest) -> None:
    registry: Registry = request.getfixturevalue(fixture)
    auth = base64.b64encode(f"somebody:{PASSWORD}".encode()).decode()
    site.docker(auths={registry.url.removeprefix("https://"): {"auth": auth}})
    assert len(site.digest(registry)) == 64


def test_an_identity_token_of_docker_login_is_changed_into_a_token(site: Site, by_token: Registry) -> None:
    host = by_token.url.removeprefix("https://")
    site.docker(auths={host: {"auth": "", "identitytoken": IDENTITY}})
    assert len(site.digest(by_token)) == 64


@pytest.mark.parametrize(
    ("fixture", "login"),
    [("by_password", ("somebody", PASSWORD)), ("by_token", ("<token>", IDENTITY))],
)
@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_a_credential_helper_is_asked_on_its_input(
    site: Site,
    fixture: str,
    login: tuple[str, str],
    key: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry: Registry = request.getfixturevalue(fixture)
    host = registry.url.removeprefix("https://")
    helper = site.folder / "docker-credential-test"
    printed = json.dumps({"ServerURL": host, "Username": login[0], "Secret": login[1]})
    helper.write_text(
        f"#!/bin/sh\n[ \"$*\" = get ] && [ \"$(cat)\" = '{host}' ] || exit 1\ncat <<'END'\n{printed}\nEND\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(site.folder), prepend=":")
    site.docker(**{key: "test" if key == "credsStore" else {host: "test"}})
    assert len(site.digest(registry)) == 64


@pytest.mark.parametrize(
    "printed",
    [
        '{"Username": "u", "Secret": "half \\ud800 pair"}',
        '{"Username": null, "Secret": {"a": "b"}}',
        "[]",
        "{",
    ],
)
def test_a_credential_helper_that_prints_no_login_is_named(
    site: Site, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = site.folder / "docker-credential-test"
    helper.write_text(f"#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{printed}\nEND\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(site.folder), prepend=":")
    site.docker(credsStore="test")
    with pytest.raises(Permanent, match="docker-credential-test prints no login"):
        Logins().of("registry.example")


def test_a_credential_helper_that_is_not_installed_is_named(site: Site) -> None:
    site.docker(credsStore="nowhere")
    with pytest.raises(Permanent) as caught:
        Logins().of("registry.example")
    assert caught.value.diagnostics[0].code == "REGISTRY_LOGIN_UNREADABLE"
    assert "docker-credential-nowhere" in caught.value.diagnostics[0].summary


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"auths": {"registry.example": {"auth": "%%%"}}}',
        '{"auths": {"registry.example": {"identitytoken": "half \\ud800 pair"}}}',
        "[" * 200_000,
    ],
    ids=["cut", "no base64", "half pair", "deep"],
)
def test_a_file_of_docker_that_cannot_be_read_is_no_missing_login(site: Site, text: str) -> None:
    (site.folder / "docker" / "config.json").write_text(text)
    with pytest.raises(Permanent) as caught:
        Logins().of("registry.example")
    assert caught.value.diagnostics[0].code == "REGISTRY_LOGIN_UNREADABLE"


@pytest.mark.parametrize(
    "text", ["[]", '{"auths": []}', '{"auths": {"registry.example": {}}}', '{"credsStore": ""}']
)
def test_a_file_of_docker_without_a_login_of_the_registry_has_none(site: Site, text: str) -> None:
    (site.folder / "docker" / "config.json").write_text(text)
    assert Logins().of("registry.example") is None


def test_docker_hub_is_found_under_the_name_that_docker_login_gives_it(site: Site) -> None:
    auth = base64.b64encode(b"somebody:secret").decode()
    site.docker(auths={"https://index.docker.io/v1/": {"auth": auth}})
    login = Logins().of("registry-1.docker.io")
    assert login is not None
    assert (login.user, login.password.get_secret_value()) == ("somebody", "secret")
