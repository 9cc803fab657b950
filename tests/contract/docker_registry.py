"""Debian's docker-registry, a registry that is not ours, and how images get there."""

from __future__ import annotations

import contextlib
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

from provision.connections.registry import DOCKER_MANIFEST

DOCKER = "application/vnd.docker."


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


@contextlib.contextmanager
def serving(folder: Path, more: str = "", tls: str = "") -> Iterator[Registry]:
    """Run the registry on loopback.

    Args:
        folder: keeps its configuration and images.
        more: of its configuration.
        tls: the value of `http.tls`; without it, it speaks plain HTTP.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {folder}/data }} }}\n{more}"
        f"http: {{ addr: '127.0.0.1:{port}'{f', tls: {tls}' if tls else ''} }}\n"
    )
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    command = [program, "serve", str(folder / "registry.yml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    requests.get(f"{url}/v2/", timeout=5)
                    break
                except requests.exceptions.ConnectionError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield Registry(url)
        finally:
            process.terminate()
