"""Charts of vendors, rendered by the real program helm with the values of shipped inventories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.api.domains import load_inventory
from provision.gpu.operator_values import operator_values
from provision.rdma.network_objects import chart_values
from provision.values.shipped import shipped_folder

INVENTORIES = ("h100-pair", "h100-kai")


@pytest.fixture(params=[3, 4], ids=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> str:
    variable = f"PROVISION_TEST_HELM{request.param}"
    program = os.environ.get(variable)
    if not program:
        pytest.skip(f"{variable} is not set: no helm of that major version")
    return program


def rendered(helm: str, name: str, values: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    charts = os.environ.get("PROVISION_TEST_CHARTS")
    if not charts or not (Path(charts) / name).exists():
        pytest.skip(f"PROVISION_TEST_CHARTS has no chart {name}")
    (folder / "values.json").write_text(json.dumps(values))
    command = [helm, "template", name, f"{charts}/{name}", "--namespace", name, "--values"]
    result = subprocess.run(
        [*command, str(folder / "values.json")],
        env={"HOME": str(folder), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [body for body in yaml.safe_load_all(result.stdout) if body]


def named(objects: list[dict[str, Any]], kind: str) -> list[str]:
    return [body["metadata"]["name"] for body in objects if body["kind"] == kind]


@pytest.mark.parametrize("name", INVENTORIES)
def test_the_gpu_operator_gets_k3s_paths_and_leaves_drivers_alone(
    helm: str, name: str, tmp_path: Path
) -> None:
    inventory = load_inventory(shipped_folder("inventories") / f"{name}.yaml")
    objects = rendered(helm, "gpu-operator", operator_values(inventory), tmp_path)
    (policy,) = [body["spec"] for body in objects if body["kind"] == "ClusterPolicy"]
    assert policy["driver"]["enabled"] is False
    if policy["toolkit"]["enabled"]:
        env = {row["name"]: row.get("value") for row in policy["toolkit"]["env"]}
        assert env["CONTAINERD_SOCKET"] == "/run/k3s/containerd/containerd.sock"
    assert named(objects, "Deployment").count("gpu-operator") == 1


@pytest.mark.parametrize("name", INVENTORIES)
def test_two_operators_bring_one_node_feature_discovery(helm: str, name: str, tmp_path: Path) -> None:
    inventory = load_inventory(shipped_folder("inventories") / f"{name}.yaml")
    sets = [
        chart
        for chart, values in (
            ("gpu-operator", operator_values(inventory)),
            ("network-operator", chart_values(inventory)),
        )
        for daemon in named(rendered(helm, chart, values, tmp_path), "DaemonSet")
        if "node-feature-discovery-worker" in daemon
    ]
    assert len(sets) == 1
