"""Container images of a bundle from Debian's docker-registry, a registry that is not ours."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.cli.main import main
from provision.connections.registry import DOCKER_INDEX
from tests.contract.docker_registry import Registry, serving

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


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with serving(tmp_path) as server:
        yield server


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
