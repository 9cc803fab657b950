"""Which container images an inventory, its charts and its objects name."""

from __future__ import annotations

import pytest

from provision.api.domains import load_inventory
from provision.api.pinned_downloads import declared_downloads
from provision.kube.container_images import images_of
from provision.values.image_reference import parse_image
from provision.values.shipped import shipped_folder


@pytest.mark.parametrize(
    ("text", "name", "host"),
    [
        ("busybox", "docker.io/library/busybox:latest", "registry-1.docker.io"),
        ("rancher/pause:3.6", "docker.io/rancher/pause:3.6", "registry-1.docker.io"),
        ("nvcr.io/nvidia/cuda:13.0", "nvcr.io/nvidia/cuda:13.0", "nvcr.io"),
        ("localhost/own", "localhost/own:latest", "localhost"),
        ("10.0.0.1:5000/a/b:v1", "10.0.0.1:5000/a/b:v1", "10.0.0.1:5000"),
        (f"ghcr.io/a/b@sha256:{'1' * 64}", f"ghcr.io/a/b@sha256:{'1' * 64}", "ghcr.io"),
    ],
)
def test_a_name_means_what_containerd_takes_it_for(text: str, name: str, host: str) -> None:
    reference = parse_image(text)
    assert reference is not None
    assert (reference.name, reference.host) == (name, host)


@pytest.mark.parametrize("text", ["", "UPPER/case", "a b", "a@sha256:12", "a:", "/a", "docker.io/Nvidia/x"])
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse_image(text) is None


@pytest.mark.parametrize(
    "text", ["a.example/../../b", "a.example/b/..", "a..example/b", "a.example:100000/b"]
)
def test_a_name_that_leads_elsewhere_is_none(text: str) -> None:
    assert parse_image(text) is None


def test_a_name_with_tag_and_digest_is_known_by_both() -> None:
    reference = parse_image(f"nvcr.io/a:1@sha256:{'2' * 64}")
    assert reference is not None
    assert reference.names("2" * 64) == ("nvcr.io/a:1", f"nvcr.io/a@sha256:{'2' * 64}")


def test_images_are_found_in_pods_variables_and_operands_that_are_on() -> None:
    pod = {"spec": {"initContainers": [{"image": "a/init:1"}], "containers": [{"image": "a/main:1"}]}}
    operand = {"repository": "nvcr.io/nvidia", "image": "dcgm", "version": "4.2"}
    fixed = {"repository": "nvcr.io/nvidia", "image": "mig", "version": f"sha256:{'3' * 64}"}
    off = {"enabled": False, "repository": "nvcr.io/nvidia", "image": "driver", "version": "580"}
    env = [
        {"name": "VALIDATOR_IMAGE", "value": "a/validator:1"},
        {"name": "IMAGE_PULL_POLICY", "value": "Always"},
    ]
    objects = [pod, {"spec": {"dcgm": operand, "mig": fixed, "driver": off}}, {"env": env}, None, "text"]
    assert images_of(objects) == (
        "a/init:1",
        "a/main:1",
        "a/validator:1",
        "nvcr.io/nvidia/dcgm:4.2",
        f"nvcr.io/nvidia/mig@sha256:{'3' * 64}",
    )


def test_the_policy_of_the_network_operator_names_its_operands() -> None:
    inventory = load_inventory(shipped_folder("inventories") / "h100-pair.yaml")
    objects = [body for download in declared_downloads(inventory) for body in download.objects]
    names = {name.rpartition("/")[2].partition(":")[0] for name in images_of(objects)}
    assert {"k8s-rdma-shared-dev-plugin", "nvidia-k8s-ipam", "multus-cni"} <= names
