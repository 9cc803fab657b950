"""Container images of a bundle, from a registry on loopback that speaks the distribution specification.

It is a server of our own: anonymous tokens, manifests by tag and digest, blobs by a redirect to another host.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.cli.main import main
from provision.connections import registry
from provision.k3s import artifacts
from provision.k3s.k3s_effects import start_seconds
from provision.k3s.resources.files import K3sUpload
from provision.k3s.roles.common import software, start_deadline
from provision.values.errors import UsageError
from tests.contract.certificates import Authority

MIB = 1024 * 1024
SITE = """
version: 1
name: cluster
access: {{ user: root }}
sources:
  {sources}
  images: ["{host}/tools/shell:1.0"]
k3s: {{ version: v1.35.7+k3s1, binary: ./k3s, images: ./k3s.tar }}
nodes:
  s1: {{ address: 198.51.100.1, k3s: server }}
gpu:
  operator: {{ version: v26.3.1, chart: ./gpu-operator.tgz }}
verify:
  images: {{ cuda: "{host}/cuda/sample:vectoradd@sha256:{index}" }}
"""
HELM = """#!/bin/sh
case $1 in
version) echo v4.2.3 ;;
template) cat <<END
kind: Deployment
spec:
  containers:
    - image: {host}/tools/shell:1.0
      env: [{{ name: VALIDATOR_IMAGE, value: "{host}/cuda/single:2" }}]
---
kind: ClusterPolicy
spec:
  driver: {{ enabled: false, repository: {host}/nvidia, image: driver, version: "580" }}
  dcgm: {{ enabled: true, repository: {host}/cuda, image: sample, version: "sha256:{index}" }}
END
;; esac
"""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Registry:
    """What the registry has; `cut` is how many bytes of a blob it sends once."""

    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    host: str = ""
    files: str = ""

    def image(self, repository: str, tag: str, text: bytes, platform: str = "amd64") -> tuple[str, bytes]:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as packed:
            member = tarfile.TarInfo("etc/motd")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text))
        plain = layer.getvalue()
        packed_layer = gzip.compress(plain, mtime=0)
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{sha(plain)}"]}
        config = json.dumps({"os": "linux", "architecture": platform, "rootfs": rootfs}).encode()
        self.blobs |= {sha(packed_layer): packed_layer, sha(config): config}
        types = ("application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+gzip")
        described = [
            {"mediaType": kind, "digest": f"sha256:{sha(data)}", "size": len(data)}
            for kind, data in zip(types, (config, packed_layer), strict=True)
        ]
        manifest = {"schemaVersion": 2, "mediaType": registry.MANIFEST}
        body = json.dumps({**manifest, "config": described[0], "layers": described[1:]}).encode()
        return self.put(repository, tag, registry.MANIFEST, body)

    def put(self, repository: str, tag: str, kind: str, body: bytes) -> tuple[str, bytes]:
        for name in (tag, f"sha256:{sha(body)}"):
            self.manifests[f"/v2/{repository}/manifests/{name}"] = (kind, body)
        return sha(body), body

    def index(self, repository: str, tag: str, *platforms: tuple[str, str, int]) -> str:
        rows = [
            {
                "mediaType": registry.MANIFEST,
                "digest": f"sha256:{digest}",
                "size": size,
                "platform": {"os": "linux", "architecture": platform},
            }
            for platform, digest, size in platforms
        ]
        body = {"schemaVersion": 2, "mediaType": registry.INDEX, "manifests": rows}
        return self.put(repository, tag, registry.INDEX, json.dumps(body).encode())[0]


class Server(ThreadingHTTPServer):
    """A server that shares what the registry has."""

    known: Registry


class Quiet(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Files(Quiet):
    """Where the registry sends readers of blobs: with a token, such places answer 400."""

    def do_GET(self) -> None:
        known, name = self.server.known, self.path.rpartition("/")[2]
        begun = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        known.asked.append(f"{name} from {begun}")
        if self.headers.get("Authorization"):
            self.answer(400, b"")
            return
        body = known.blobs[name][begun:]
        self.send_response(206 if begun else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: known.cut.pop(name, len(body))])


class Api(Quiet):
    """The registry; each repository wants a token of its own."""

    def do_GET(self) -> None:
        known = self.server.known
        path, _, query = self.path.partition("?")
        known.asked.append(path)
        repository = path.removeprefix("/v2/").partition("/manifests/")[0].partition("/blobs/")[0]
        name = path.rpartition("sha256:")[2]
        if path == "/token":
            self.answer(200, json.dumps({"token": f"for {query}"}).encode())
        elif repository.replace("/", "%2F") not in self.headers.get("Authorization", ""):
            scope = f'service="test",scope="repository:{repository}:pull"'
            self.answer(401, b"", WWW_Authenticate=f'Bearer realm="https://{known.host}/token",{scope}')
        elif path in known.manifests:
            kind, body = known.manifests[path]
            self.answer(200, body, Content_Type=kind)
        elif name in known.blobs:
            self.answer(307, b"", Location=f"{known.files}/{name}")
        else:
            self.answer(404, b"")


def _server(folder: Path, handler: type[BaseHTTPRequestHandler], known: Registry) -> Server:
    server = Server(("127.0.0.1", 0), handler)
    server.known = known
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    folder = tmp_path / "web"
    folder.mkdir()
    authority = Authority()
    certificate, key = authority.issue("server", "127.0.0.1")
    (folder / "server.pem").write_text(certificate + key)
    (folder / "ca.pem").write_text(authority.pem)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    known = Registry()

    servers = [_server(folder, Api, known), _server(folder, Files, known)]
    known.host, files = (f"127.0.0.1:{server.server_port}" for server in servers)
    known.files = f"https://{files}"
    yield known
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(web: Registry, tmp_path: Path) -> Path:
    foreign, foreign_body = web.image("cuda/sample", "arm", b"other processor", "arm64")
    own, own_body = web.image("cuda/sample", "amd", b"vector add")
    parts = (("arm64", foreign, len(foreign_body)), ("amd64", own, len(own_body)))
    index = web.index("cuda/sample", "vectoradd", *parts)
    web.image("tools/shell", "1.0", os.urandom(2 * MIB))
    web.image("cuda/single", "2", b"validator")
    pack_chart(tmp_path, f'image: "{web.host}/cuda/single:2"')
    (tmp_path / "k3s").write_bytes(b"k3s")
    (tmp_path / "k3s.tar").write_bytes(b"images of k3s")
    (tmp_path / "helm").write_text(HELM.format(host=web.host, index=index))
    (tmp_path / "helm").chmod(0o755)
    inventory = tmp_path / "site.yaml"
    inventory.write_text(SITE.format(host=web.host, index=index, sources="mode: online"))
    return inventory


def pack_chart(folder: Path, template: str) -> None:
    files = {
        "Chart.yaml": "apiVersion: v2\nname: gpu-operator\nversion: v26.3.1\n",
        "templates/pod.yaml": f"apiVersion: v1\nkind: Pod\nspec: {{ containers: [{{ {template} }}] }}\n",
    }
    with tarfile.open(folder / "gpu-operator.tgz", "w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"gpu-operator/{name}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))


def rows(bundle: Path) -> dict[str, dict[str, Any]]:
    listed = json.loads((bundle / "manifest.json").read_text())["files"]
    return {row["path"]: row for row in listed if "images" in row}


def layout(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        members = [(name, packed.extractfile(name)) for name in packed.getnames()]
        return {name: member.read() for name, member in members if member is not None}


def make(site: Path, *more: str) -> tuple[int, Path]:
    bundle = site.parent / "bundle"
    return main(["bundle", str(site), str(bundle), "--helm", str(site.parent / "helm"), *more]), bundle


def test_images_of_checks_inventory_and_rendered_charts_are_bundled(web: Registry, site: Path) -> None:
    code, bundle = make(site)
    assert code == 0
    names = {name.removeprefix(f"{web.host}/") for row in rows(bundle).values() for name in row["images"]}
    assert {name for name in names if "@" not in name} == {
        "tools/shell:1.0",
        "cuda/sample:vectoradd",
        "cuda/single:2",
    }
    for path, row in rows(bundle).items():
        assert sha((bundle / path).read_bytes()) == row["sha256"]
    assert not any("driver" in path for path in web.asked)  # the operand is off
    assert not (bundle / "containers" / "parts").exists()
    lock = (site.parent / "provision.lock.yaml").read_text()
    assert f"{web.host}/tools/shell:1.0" in lock


def test_an_archive_has_the_image_of_the_nodes_platform_under_its_names(web: Registry, site: Path) -> None:
    _, bundle = make(site)
    row = next(row for path, row in rows(bundle).items() if "cuda_sample" in path)
    files = layout(bundle / row["path"])
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    described = json.loads(files["index.json"])["manifests"]
    top = described[0]["digest"].removeprefix("sha256:")
    assert [one["annotations"]["io.containerd.image.name"] for one in described] == [
        f"{web.host}/cuda/sample:vectoradd",
        f"{web.host}/cuda/sample@sha256:{top}",
    ]
    blobs = {name.rpartition("/")[2]: data for name, data in files.items() if name.startswith("blobs/")}
    assert all(sha(data) == name for name, data in blobs.items())
    texts = [gzip.decompress(data) for data in blobs.values() if data[:2] == b"\x1f\x8b"]
    assert len(texts) == 1
    assert b"vector add" in texts[0]


def test_a_second_run_asks_no_registry_and_ignores_a_tag_that_moved(web: Registry, site: Path) -> None:
    _, bundle = make(site)
    before = {path: (bundle / path).read_bytes() for path in rows(bundle)}
    web.image("tools/shell", "1.0", b"another one")
    web.asked.clear()
    assert make(site)[0] == 0
    assert web.asked == []
    assert {path: (bundle / path).read_bytes() for path in rows(bundle)} == before


def test_a_layer_that_was_cut_goes_on_where_it_ended(
    web: Registry, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = max(web.blobs, key=lambda name: len(web.blobs[name]))  # that of the shell
    web.cut[layer] = MIB
    assert make(site)[0] == 1
    assert "the connection broke after 1048576 of " in capsys.readouterr().err
    web.asked.clear()
    assert make(site)[0] == 0
    assert [line for line in web.asked if line.startswith(layer)] == [f"{layer} from {MIB}"]


def test_other_content_than_the_digest_is_not_kept(
    web: Registry, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = max(web.blobs, key=lambda name: len(web.blobs[name]))  # that of the shell
    web.blobs[layer] = b"something else"
    code, bundle = make(site)
    assert code == 1
    assert "DOWNLOAD_WRONG" in capsys.readouterr().err
    assert not (bundle / "manifest.json").exists()


def test_an_image_without_the_nodes_platform_is_named(
    web: Registry, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest, body = web.image("tools/shell", "arm", b"x", "arm64")
    web.index("tools/shell", "1.0", ("arm64", digest, len(body)))
    assert make(site)[0] == 1
    errors = capsys.readouterr().err
    assert "tools/shell:1.0" in errors
    assert "linux/amd64" in errors


def test_without_helm_the_charts_are_named_whose_images_are_missing(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", str(site), str(site.parent / "bundle")]) == 0
    assert "gpu-operator" in capsys.readouterr().err
    assert len(rows(site.parent / "bundle")) == 2


@pytest.mark.parametrize("major", [3, 4])
def test_the_real_helm_renders_a_chart_and_says_what_is_wrong(
    web: Registry, site: Path, capsys: pytest.CaptureFixture[str], major: int
) -> None:
    program = os.environ.get(f"PROVISION_TEST_HELM{major}")
    if not program:
        pytest.skip(f"PROVISION_TEST_HELM{major} is not set: no helm of that major version")
    shutil.copy(program, site.parent / "helm")
    image = '{{ if eq .Capabilities.KubeVersion.Version "v1.35.7" }}single:2{{ end }}'
    pack_chart(site.parent, f'image: "{web.host}/cuda/{image}"')
    assert make(site)[0] == 0
    assert any("cuda_single" in path for path in rows(site.parent / "bundle"))
    pack_chart(site.parent, '{{ fail "the value x is missing" }}')
    assert (
        make(site, "--archive", str(site.parent / "unwritten.tar"))[0] == 4
    )  # another file than the pinned one
    (site.parent / "provision.lock.yaml").unlink()
    assert make(site)[0] == 1
    assert "the value x is missing" in capsys.readouterr().err


def test_nodes_get_the_archives_and_a_changed_one_is_refused(web: Registry, site: Path) -> None:
    _, bundle = make(site)
    digest = next(row for path, row in rows(bundle).items() if "cuda_sample" in path)["url"].rpartition(":")[
        2
    ]
    used = site.parent / "used.yaml"
    used.write_text(SITE.format(host=web.host, index=digest, sources=f'mode: bundle\n  bundle: "{bundle}"'))
    images = artifacts.container_images(load(used))
    assert [image.asset for image in images] == [Path(path).name for path in rows(bundle)]
    inventory = load(used)
    resources = software(inventory, inventory.nodes["s1"], "k3s.service")
    sent = {one.path: one.blob.sha256 for one in resources if isinstance(one, K3sUpload)}
    for image in images:
        assert sent[f"/var/lib/rancher/k3s/agent/images/{image.asset}"] == image.blob.sha256
    assert start_deadline(inventory) == 600  # small ones cost no time
    assert (start_seconds(40 * 1024), start_seconds(10**6)) == (2648, 7200)
    assert [sha(bytes(image.blob.view())) for image in images] == [image.blob.sha256 for image in images]
    (bundle / next(iter(rows(bundle)))).write_bytes(b"touched")
    with pytest.raises(UsageError) as caught:
        artifacts.container_images(load(used))
    assert caught.value.diagnostics[0].code == "BUNDLE_CHANGED"


def test_containerd_imports_the_archives_with_all_their_names(site: Path, tmp_path: Path) -> None:
    containerd, ctr = (shutil.which(program) for program in ("containerd", "ctr"))
    if containerd is None or ctr is None:
        pytest.skip("containerd is not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root for containerd")
    _, bundle = make(site)
    state = tmp_path / "containerd"
    command = [containerd, "--root", f"{state}/root", "--state", f"{state}/state", "-a", f"{state}/sock"]
    (tmp_path / "empty.toml").write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    with subprocess.Popen([*command, "-c", str(tmp_path / "empty.toml")], stderr=subprocess.DEVNULL) as run:
        try:
            client = [ctr, "-a", f"{state}/sock", "-n", "k8s.io", "images"]
            until = time.monotonic() + 60
            while subprocess.run([*client, "ls"], capture_output=True, check=False).returncode:
                assert time.monotonic() < until
                time.sleep(0.1)
            for path in rows(bundle):
                subprocess.run([*client, "import", "--no-unpack", str(bundle / path)], check=True)
            listed = subprocess.run([*client, "ls", "-q"], capture_output=True, text=True, check=True)
            names = {name for row in rows(bundle).values() for name in row["images"]}
            assert set(listed.stdout.split()) == names
            for name in names:
                shown = subprocess.run(
                    [*client, "check", f"name=={name}"], capture_output=True, text=True, check=True
                )
                assert " complete (" in shown.stdout
        finally:
            run.terminate()
