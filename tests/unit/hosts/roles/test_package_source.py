"""Package sources of our own: which ones a node gets, and when they go."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.resource import Resource
from provision.hosts.apt_sources import CONFIG, KEY, MORE, RELEASES, SOURCES, STAMP, releases_of_node
from provision.hosts.protocol.script import APT_FOLDER
from provision.hosts.resources.apt_source import LISTS, AptSource, AptSourceGone
from provision.hosts.resources.package import Package
from provision.hosts.roles import base_os
from provision.inventory import Inventory, Subject
from provision.testing.model_host import ModelHost, guest_state
from provision.testing.model_state import ModelFile
from provision.values.errors import Permanent
from tests.unit.hosts.converge import converge, differing, snapshot_of
from tests.unit.hosts.roles.test_shipped_inventories import context_of, resources_of

NODE = Subject("node", "n1")


def inventory_of(tmp_path: Path, sources: str, node: str = "packages: [tool]") -> Inventory:
    file = tmp_path / "site.yaml"
    file.write_text(
        "version: 1\nname: site\naccess: { user: root }\n"
        f"sources: {{ {sources} }}\nnodes:\n  n1: {{ address: 198.51.100.1, {node} }}\n"
    )
    return load(file)


def made(inventory: Inventory, host: ModelHost) -> list[Resource]:
    return list(resources_of(base_os, inventory, NODE, host))


def host_of(release: str) -> ModelHost:
    name, _, version = release.partition("-")
    state = guest_state()
    state.files["/etc/os-release"] = ModelFile(f'NAME="x"\nID={name}\nVERSION_ID="{version}"\n'.encode())
    state.files.update({release.keyring: ModelFile(b"keys") for release in RELEASES.values()})
    return ModelHost("n1/ssh", state)


MIRROR = "apt: https://mirror.example/debian"


@pytest.mark.parametrize("release", RELEASES)
def test_a_mirror_has_the_suites_and_keys_of_the_host_s_release(tmp_path: Path, release: str) -> None:
    name = release.partition("-")[0]
    inventory = inventory_of(tmp_path, f"apt: https://mirror.example/{name}")
    host = host_of(release)
    converge(host, made(inventory, host))
    text = host.state.text(SOURCES)
    codename = RELEASES[release].codename
    assert f"Suites: {codename} {codename}-updates" in text
    assert f"Signed-By: /usr/share/keyrings/{name}-archive-keyring.gpg" in text
    assert f"URIs: https://mirror.example/{name}\n" in text
    assert ("URIs: https://mirror.example/debian-security\n" in text) == (name == "debian")
    assert "Check-Valid-Until" not in text
    config = host.state.text(CONFIG)
    assert f'Dir::Etc::SourceList "{SOURCES}";' in config
    assert 'Dir::Etc::SourceParts "/dev/null";' in config
    assert host.state.packages["tool"]


def test_the_source_comes_before_the_packages_and_nothing_differs_then(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, MIRROR), host_of("debian-12")
    kinds = [type(one) for one in made(inventory, host)]
    assert kinds.index(AptSource) < kinds.index(Package)
    converge(host, made(inventory, host))
    assert not differing(host, made(inventory, host))


def test_another_mirror_fetches_the_lists_again(tmp_path: Path) -> None:
    host = host_of("debian-12")
    converge(host, made(inventory_of(tmp_path, MIRROR), host))
    before = host.state.text(STAMP)
    other = inventory_of(tmp_path, "apt: https://other.example/debian")
    (differing_one,) = differing(host, made(other, host))
    changed = {change.path for change in differing_one.changes(snapshot_of(host, [differing_one]))}
    assert changed == {"source", "lists"}
    converge(host, made(other, host))
    assert host.state.text(STAMP) != before


def test_who_chooses_among_packages_waits_for_the_lists(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, MIRROR), host_of("debian-12")
    (source,) = [one for one in made(inventory, host) if isinstance(one, AptSource)]
    changes = source.creation()
    assert source.affects(changes) == {("n1/ssh", LISTS)}
    assert source.affects(()) == frozenset()


def test_a_source_that_is_declared_no_more_goes_and_nothing_is_left(tmp_path: Path) -> None:
    host = host_of("debian-12")
    converge(host, made(inventory_of(tmp_path, MIRROR), host))
    without = inventory_of(tmp_path, "mode: online")
    assert any(isinstance(one, AptSourceGone) for one in made(without, host))
    converge(host, made(without, host))
    assert not any(path.startswith(APT_FOLDER) for path in host.state.files)
    assert not any(isinstance(one, AptSourceGone) for one in made(without, host))


def test_destroy_removes_the_source(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, MIRROR), host_of("debian-12")
    converge(host, made(inventory, host))
    converge(host, list(base_os.retired(context_of(base_os, inventory, NODE, host))))
    assert not any(path.startswith(APT_FOLDER) for path in host.state.files)


def test_a_release_without_a_known_mirror_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Permanent) as caught:
        made(inventory_of(tmp_path, MIRROR), host_of("rocky-9"))
    (problem,) = caught.value.diagnostics
    assert problem.code == "RELEASE_UNSUPPORTED"
    assert "n1 has rocky-9" in problem.summary


def test_a_key_of_the_mirror_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    inventory, host = inventory_of(tmp_path, f"{MIRROR}, apt_key: ./key.asc"), host_of("debian-12")
    converge(host, made(inventory, host))
    assert host.state.text(KEY).startswith("-----BEGIN")
    assert f"Signed-By: {KEY}" in host.state.text(SOURCES)


def test_archives_of_drivers_come_beside_the_mirror(tmp_path: Path) -> None:
    line = "deb [signed-by=/usr/share/keyrings/cuda.gpg] https://mirror.example/cuda ./"
    inventory, host = inventory_of(tmp_path, f"{MIRROR}, apt_more: ['{line}']"), host_of("debian-12")
    converge(host, made(inventory, host))
    assert host.state.text(MORE) == f"{line}\n"
    assert f'Dir::Etc::SourceParts "{MORE.rpartition("/")[0]}";' in host.state.text(CONFIG)
    assert not differing(host, made(inventory, host))


def bundle_of(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    rows = []
    for path, more in (
        ("apt/debian/dists/bookworm/InRelease", {"release": "debian-12", "hosts": ["n1", "n2"]}),
        ("apt/debian/pool/t/tool.deb", {"hosts": ["n1"]}),
        ("apt/debian/pool/o/other.deb", {"hosts": ["n2"]}),
    ):
        file = bundle / path
        file.parent.mkdir(parents=True)
        file.write_text(path)
        rows.append({"path": path, "sha256": hashlib.sha256(path.encode()).hexdigest(), **more})
    (bundle / "manifest.json").write_text(json.dumps({"files": rows}))
    return bundle


def test_a_host_gets_indexes_and_its_own_packages_of_a_bundle(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, f"mode: bundle, bundle: '{bundle_of(tmp_path)}', {MIRROR}")
    host = host_of("debian-12")
    converge(host, made(inventory, host))
    sent = {path for path in host.state.files if path.startswith(f"{APT_FOLDER}/archive/")}
    assert {Path(path).name for path in sent if host.state.files[path].type == "file"} == {
        "InRelease",
        "tool.deb",
    }
    text = host.state.text(SOURCES)
    assert f"URIs: file:{APT_FOLDER}/archive/debian\n" in text
    assert "Check-Valid-Until: no" in text  # a bundle is as old as it is
    assert not differing(host, made(inventory, host))


def test_a_bundle_without_packages_of_a_host_leaves_its_sources_alone(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text('{"files": []}')
    inventory, host = inventory_of(tmp_path, "mode: bundle, bundle: ./bundle"), host_of("debian-12")
    assert not any(isinstance(one, AptSource) for one in made(inventory, host))


def test_a_bundle_for_another_release_is_refused(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, f"mode: bundle, bundle: '{bundle_of(tmp_path)}'")
    with pytest.raises(Permanent) as caught:
        made(inventory, host_of("debian-13"))
    assert "n1 has debian-13, and the bundle has debian-12" in caught.value.diagnostics[0].summary


@pytest.mark.parametrize(
    ("image", "releases"),
    [
        (
            "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-generic.qcow2",
            ["debian-12"],
        ),
        ("https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img", ["ubuntu-24.04"]),
        ("https://images.example/own.qcow2", ["debian-13"]),
    ],
)
def test_the_release_of_a_node_is_that_of_its_image_else_the_declared_ones(
    tmp_path: Path, image: str, releases: list[str]
) -> None:
    inventory = inventory_of(tmp_path, "releases: [debian-13]")
    node = inventory.nodes["n1"].model_copy(update={"image": "base"})
    declared = load_image(tmp_path, image)
    assert list(releases_of_node(declared, node)) == releases


def load_image(tmp_path: Path, url: str) -> Inventory:
    file = tmp_path / "images.yaml"
    file.write_text(
        "version: 1\nname: site\naccess: { user: root }\nsources: { releases: [debian-13] }\n"
        f"images:\n  base: {{ url: '{url}' }}\nnodes:\n  n1: {{ address: 198.51.100.1 }}\n"
    )
    return load(file)


def test_a_mirror_alone_is_enough_for_the_step(tmp_path: Path) -> None:
    assert base_os.declared(inventory_of(tmp_path, MIRROR, "swap: unmanaged"), NODE)
