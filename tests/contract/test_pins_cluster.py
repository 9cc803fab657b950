"""Pins of k3s and of charts, from a web server with a certificate: lists, indexes, a registry."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.cli import main
from provision.connections.digests import CHART_LAYER
from provision.connections.download import cached
from provision.inventory.check_images import check_image
from provision.inventory.lock import Pin
from provision.k3s import artifacts
from provision.values.errors import UsageError
from tests.contract.certificates import Authority

BINARY, IMAGES, CHART = b"k3s", b"archive", b"chart"
VERSION, ESCAPED = "v1.35.7+k3s1", "v1.35.7%2Bk3s1"
SUMS = f"/k3s/{ESCAPED}/sha256sum-amd64.txt"
INDEX = "/charts/index.yaml"
SITE = """
version: 1
name: cluster
access: {{ user: root }}
sources: {{ mode: mirror, mirror: "{url}" }}
k3s: {{ version: v1.35.7+k3s1 }}
nodes:
  s1: {{ address: 198.51.100.1, k3s: server }}
gpu:
  operator: {{ version: v26.3.1, repository: "{repository}" }}
"""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sums() -> bytes:
    rows = [(BINARY, "k3s"), (IMAGES, artifacts.IMAGES_ASSET), (b"other", "k3s-airgap-images-amd64.tar")]
    return "".join(f"{sha(data)}  {name}\n" for data, name in rows).encode()


def index(digest: str = f"digest: {sha(CHART)}", version: str = "v26.3.1") -> bytes:
    rows = f"{{ version: v25.0.0, urls: [old.tgz] }}, {{ version: {version}, urls: [{{url}}], {digest} }}"
    return f"apiVersion: v1\nentries: {{ gpu-operator: [{rows}] }}\n".replace(
        "{url}", f"gpu-operator-{version}.tgz"
    ).encode()


@dataclass
class Web:
    """A mirror, a chart repository and a registry, all on one address."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def registry(self) -> str:
        return self.url.replace("https://", "oci://") + "/nvidia/gpu-operator"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("web")
    authority = Authority()
    certificate, key = authority.issue("server", "127.0.0.1")
    (folder / "server.pem").write_text(certificate + key)
    (folder / "ca.pem").write_text(authority.pem)
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append(self.path)
            path, _, _ = self.path.partition("?")
            body = web.files.get(path)
            locked = path.startswith("/v2/") and self.headers.get("Authorization") != "Bearer anyone"
            self.send_response(401 if locked else 404 if body is None else 200)
            if locked:
                scope = f'Bearer realm="{web.url}/token",service="reg",scope="repository:x:pull"'
                self.send_header("WWW-Authenticate", scope)
            data = b"" if locked or body is None else body
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    web.url = f"https://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(name, raising=False)
        patch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
        yield web
    server.shutdown()
    server.server_close()


@pytest.fixture
def web(served: Web) -> Web:
    layer = {"mediaType": CHART_LAYER, "digest": f"sha256:{sha(CHART)}"}
    manifest = {"layers": [{"mediaType": "text/plain", "digest": "sha256:" + "0" * 64}, layer]}
    served.files = {
        SUMS: sums(),
        f"/k3s/{ESCAPED}/k3s": BINARY,
        INDEX: index(),
        "/charts/gpu-operator-v26.3.1.tgz": CHART,
        "/token": b'{"token": "anyone"}',
        "/v2/nvidia/gpu-operator/manifests/v26.3.1": json.dumps(manifest).encode(),
    }
    served.asked.clear()
    return served


@pytest.fixture
def site(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "site.yaml"
    file.write_text(SITE.format(url=web.url, repository=f"{web.url}/charts"))
    return file


def pin(site: Path, *more: str) -> int:
    return main.main(["pin", str(site), *more])


def errors(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_binary_that_was_not_pinned_can_be_sent_after_the_remedy(site: Path, web: Web) -> None:
    with pytest.raises(UsageError, match="BINARY_UNPINNED"):
        artifacts.binary(load(site))
    assert pin(site) == 0
    sent, images = artifacts.binary(load(site)), artifacts.images(load(site))
    assert sent.blob.read is not None
    assert (sent.blob.sha256, sent.blob.read()) == (sha(BINARY), BINARY)
    assert images is not None
    assert images.blob.sha256 == sha(IMAGES)
    assert f"/k3s/{ESCAPED}/{artifacts.IMAGES_ASSET}" not in web.asked, "the list is enough"


def test_nodes_that_pull_images_need_no_archive(
    site: Path, monkeypatch: pytest.MonkeyPatch, web: Web
) -> None:
    monkeypatch.setattr(artifacts, "RELEASES", f"{web.url}/k3s")
    site.write_text(site.read_text().replace(f'mode: mirror, mirror: "{web.url}"', "mode: online"))
    assert pin(site) == 0
    assert set(load(site).lock.binaries) == {"k3s"}


def test_a_pin_of_the_release_serves_its_mirror(site: Path, web: Web) -> None:
    assert pin(site) == 0
    lock = site.with_name("provision.lock.yaml")
    lock.write_text(lock.read_text().replace(f"{web.url}/k3s", artifacts.RELEASES))
    before = lock.read_text()
    web.asked.clear()
    assert pin(site) == 0
    assert (web.asked, lock.read_text()) == ([], before)


def test_another_release_is_pinned_too(site: Path, web: Web) -> None:
    assert pin(site) == 0
    site.write_text(site.read_text().replace(VERSION, "v1.35.8+k3s1"))
    web.files[SUMS.replace("35.7", "35.8")] = sums().replace(sha(BINARY).encode(), b"a" * 64)
    assert pin(site) == 0
    assert artifacts.binary(load(site)).blob.sha256 == "a" * 64


def test_a_list_that_has_changed_is_refused_until_it_is_accepted(
    site: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pin(site) == 0
    before = load(site).lock
    web.files[SUMS] = sums().replace(sha(BINARY).encode(), b"a" * 64)
    assert pin(site, "--refresh") == 4
    assert "the digest of k3s has changed" in errors(capsys)
    assert load(site).lock == before
    assert pin(site, "--accept") == 0
    assert load(site).lock.binaries["k3s"].sha256 == "a" * 64


@pytest.mark.parametrize("digest", [f"digest: {sha(CHART)}", f"digest: 'sha256:{sha(CHART)}'", "home: x"])
def test_a_chart_has_the_digest_of_its_index_or_of_itself(site: Path, web: Web, digest: str) -> None:
    web.files[INDEX] = index(digest)
    assert pin(site) == 0
    url = f"{web.url}/charts/gpu-operator-v26.3.1.tgz"
    assert load(site).lock.charts == {"gpu-operator": Pin(url, sha(CHART))}
    assert cached(sha(CHART)) == CHART, "plans compare values with it"


def test_an_archive_that_its_index_does_not_mean_is_not_pinned(
    site: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.files[INDEX] = index(f"digest: {'a' * 64}")
    assert pin(site) == 1
    assert "does not match its repository's index" in errors(capsys)
    assert not site.with_name("provision.lock.yaml").exists()


def test_a_chart_of_a_registry_has_the_digest_of_its_layer(site: Path, web: Web) -> None:
    site.write_text(site.read_text().replace(f"{web.url}/charts", web.registry))
    assert pin(site) == 0
    assert load(site).lock.charts["gpu-operator"] == Pin(f"{web.registry}:v26.3.1", sha(CHART))
    assert "/token?service=reg&scope=repository%3Ax%3Apull" in web.asked


def test_local_files_are_pinned_by_name_and_hash(
    site: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: site.with_name(name) for name in ("k3s-bin", "images.tar.zst", "chart.tgz")}
    for file in files.values():
        file.write_bytes(b"1")
    local = "binary: ./k3s-bin, images: ./images.tar.zst"
    text = site.read_text().replace("v1.35.7+k3s1 }", f"v1.35.7+k3s1, {local} }}")
    site.write_text(text.replace(f'repository: "{web.url}/charts"', "chart: ./chart.tgz"))
    assert pin(site) == 0
    lock = load(site).lock
    assert lock.binaries["k3s"] == Pin("file:k3s-bin", sha(b"1"))
    assert lock.charts["gpu-operator"] == Pin("file:chart.tgz", sha(b"1"))
    assert web.asked == []
    files["k3s-bin"].write_bytes(b"22")
    with pytest.raises(UsageError, match="is not the file that was pinned"):
        artifacts.binary(load(site))
    assert pin(site) == 4
    assert "DIGEST_CHANGED" in errors(capsys)
    assert pin(site, "--accept") == 0
    assert artifacts.binary(load(site)).blob.sha256 == sha(b"22")


def gone(web: Web) -> None:
    web.files.clear()


def no_line(web: Web) -> None:
    web.files[SUMS] = b"garbage\n" + sha(BINARY).encode() + b"  k3s-arm64\n"


def no_version(web: Web) -> None:
    web.files[INDEX] = index(version="v26.3.2")


def no_index(web: Web) -> None:
    web.files[INDEX] = b"<html>: ["


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (gone, "the digest of k3s cannot be read"),
        (no_line, "has no line for k3s"),
        (no_version, "has no gpu-operator v26.3.1: it begins with v25.0.0, v26.3.2"),
        (no_index, "is not the index of a chart repository"),
    ],
)
def test_what_nobody_publishes_is_said_and_leaves_no_lock(
    site: Path, web: Web, fault: Callable[[Web], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault(web)
    assert pin(site) == 1
    assert words in errors(capsys)
    assert not site.with_name("provision.lock.yaml").exists()


def test_offline_the_error_is_plain_and_names_a_way_out(
    site: Path, web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(site.read_text().replace(f'mirror: "{web.url}"', 'mirror: "https://mirror.invalid"'))
    assert pin(site) == 1
    text = errors(capsys)
    assert "the name of the host cannot be resolved" in text
    assert "or a file on this machine as k3s.binary" in text
    assert "HTTPSConnection" not in text
    assert "object at" not in text


MANIFEST = b'{"schemaVersion": 2}'
CHECKS = """
version: 1
name: checks
access: {{ user: root }}
k3s: {{ version: v1.35.7+k3s1, binary: ./k3s }}
nodes: {{ s1: {{ address: 198.51.100.1, k3s: server }} }}
verify: {{ images: {{ cuda: "{host}/nvidia/cuda:v1@sha256:<64 hex digits>" }} }}
"""


def test_the_digest_of_an_image_of_checks_is_found_and_used(
    served: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = served.url.removeprefix("https://")
    file = tmp_path / "checks.yaml"
    file.write_text(CHECKS.format(host=host))
    (tmp_path / "k3s").write_bytes(BINARY)
    served.files["/v2/nvidia/cuda/manifests/v1"] = MANIFEST
    served.files["/token"] = b'{"token": "anyone"}'
    assert main.main(["validate", str(file)]) == 0
    assert f"the digest of {host}/nvidia/cuda:v1 is not known" in capsys.readouterr().err
    assert check_image(load(file), "cuda") is None
    assert main.main(["pin", str(file)]) == 0
    pinned = f"{host}/nvidia/cuda:v1@sha256:{sha(MANIFEST)}"
    assert check_image(load(file), "cuda") == pinned
    capsys.readouterr()
    assert main.main(["validate", str(file)]) == 0
    assert "is not known" not in capsys.readouterr().err

    asked = len(served.asked)
    served.files["/v2/nvidia/cuda/manifests/v1"] = b'{"schemaVersion": 2, "moved": true}'
    assert main.main(["pin", str(file)]) == 0
    assert not [path for path in served.asked[asked:] if path.startswith("/v2/")], "it is pinned"
    assert main.main(["pin", str(file), "--refresh"]) != 0
    assert "its tag now gives another image" in capsys.readouterr().err
    assert check_image(load(file), "cuda") == pinned
    assert main.main(["pin", str(file), "--accept"]) == 0
    assert check_image(load(file), "cuda") != pinned
