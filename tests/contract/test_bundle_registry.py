"""Container images of a bundle from Debian's docker-registry, a registry that is not ours."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from provision.cli.main import main
from provision.connections.registry import DOCKER_INDEX, DOCKER_MANIFEST

DOCKER = "application/vnd.docker."
SITE = """
version: 1
name: cluster
access: {{ user: root }}
sources:
  registries: {{ registry.example: "{url}" }}
  images: ["registry.example/tools/shell:1.0"]
k3s: {{ version: v1.35.7+k3s1, binary: ./k3s, images: ./k3s.tar }}
nodes:
  s1: {{ address: 198.51.100.1, k3s: server }}
"""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Registry:
    """A running registry, and how images get there."""

    url: str

    def blob(self, repository: str, data: bytes) -> dict[str, object]:
        begun = requests.post(f"{self.url}/v2/{repository}/blobs/uploads/", timeout=60)
        put = requests.put(f"{begun.headers['Location']}&digest={digest(data)}", data=data, timeout=60)
        put.raise_for_status()
        return {"digest": digest(data), "size": len(data)}

    def manifest(self, repository: str, tag: str, kind: str, body: dict[str, object]) -> dict[str, object]:
        data = json.dumps({"schemaVersion": 2, "mediaType": kind, **body}).encode()
        place = f"{self.url}/v2/{repository}/manifests/{tag}"
        requests.put(place, data=data, headers={"Content-Type": kind}, timeout=60).raise_for_status()
        return {"mediaType": kind, "digest": digest(data), "size": len(data)}

    def image(self, repository: str, text: bytes, architecture: str) -> dict[str, object]:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as packed:
            member = tarfile.TarInfo("etc/motd")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text))
        rootfs = {"type": "layers", "diff_ids": [digest(layer.getvalue())]}
        config = json.dumps({"os": "linux", "architecture": architecture, "rootfs": rootfs}).encode()
        body: dict[str, object] = {
            "config": {"mediaType": f"{DOCKER}container.image.v1+json", **self.blob(repository, config)},
            "layers": [
                {
                    "mediaType": f"{DOCKER}image.rootfs.diff.tar.gzip",
                    **self.blob(repository, gzip.compress(layer.getvalue())),
                }
            ],
        }
        row = self.manifest(repository, architecture, DOCKER_MANIFEST, body)
        return {**row, "platform": {"os": "linux", "architecture": architecture}}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {tmp_path}/data }} }}\n"
        f"http: {{ addr: '127.0.0.1:{port}' }}\n"
    )
    command = [program, "serve", str(tmp_path / "registry.yml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    requests.get(f"http://127.0.0.1:{port}/v2/", timeout=5)
                    break
                except requests.exceptions.ConnectionError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield Registry(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()


def test_an_image_of_docker_s_own_types_is_bundled_for_the_nodes_platform(
    registry: Registry, tmp_path: Path
) -> None:
    rows = [
        registry.image("tools/shell", text, name) for name, text in (("arm64", b"arm"), ("amd64", b"own"))
    ]
    index = registry.manifest("tools/shell", "1.0", DOCKER_INDEX, {"manifests": rows})
    (tmp_path / "site.yaml").write_text(SITE.format(url=registry.url))
    (tmp_path / "k3s").write_bytes(b"k3s")
    (tmp_path / "k3s.tar").write_bytes(b"images of k3s")
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(tmp_path / "site.yaml"), str(bundle)]) == 0
    (archive,) = (bundle / "containers").iterdir()
    with tarfile.open(archive) as packed:
        members = {name: packed.extractfile(name) for name in packed.getnames()}
        files = {name: member.read() for name, member in members.items() if member is not None}
    named = json.loads(files["index.json"])["manifests"]
    assert {row["digest"] for row in named} == {index["digest"]}
    kept = {f"sha256:{name.rpartition('/')[2]}" for name in files if name.startswith("blobs/")}
    assert {index["digest"], rows[1]["digest"]} <= kept
    assert rows[0]["digest"] not in kept
