"""NVIDIA's container runtime on a node: what containerd has read, and what disagrees in the inventory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence
from provision.gpu.operator_preflight import toolkit
from provision.gpu.resources.runtime import AwaitToolkit
from provision.inventory import Inventory
from provision.k3s import runtimes
from provision.k3s.runtimes import NVIDIA_RUNTIME_KIND, NvidiaRuntime, RuntimeStatus
from provision.values.diagnostics import Diagnostic
from tests.model.shells import SHELLS, run
from tests.unit.gpu.test_operator import SITE

DESIRED = f"{runtimes.TOOLKIT}/{runtimes.RUNTIME}"
V3 = f"""version = 3
imports = ["/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia']
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia'.options]
  BinaryName = "{DESIRED}"
  SystemdCgroup = true
"""
V2 = f"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia-cdi".options]
  BinaryName = "/other"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia".options]
  BinaryName = "{DESIRED}"
"""
WITHOUT = "version = 3\n[plugins.'x'.containerd.runtimes.'nvidia-cdi'.options]\n  BinaryName = \"/x\"\n"


def asked(shell: str, root: Path) -> object:
    script = NVIDIA_RUNTIME_KIND.script([NvidiaRuntime()])
    for path in (runtimes.TOOLKIT, runtimes.CONTAINERD, runtimes.SOCKET, runtimes.NRI):
        script = script.replace(path, f"{root}{path}")
    answer = NVIDIA_RUNTIME_KIND.parse(run(shell, script), [NvidiaRuntime()])[NvidiaRuntime()]
    if isinstance(answer, RuntimeStatus):
        return answer.installed.removeprefix(str(root)), answer.configured
    return answer


def write(root: Path, path: str, text: str, age: int = 0) -> None:
    file = Path(f"{root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    os.utime(file, (1_000_000 - age, 1_000_000 - age))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("text", "configured"),
    [(V3, DESIRED), (V2, DESIRED), (WITHOUT, ""), ("", "")],
    ids=["3", "2", "cdi", "-"],
)
def test_the_runtime_is_read_from_containerds_configuration(
    shell: str, text: str, configured: str, tmp_path: Path
) -> None:
    write(tmp_path, DESIRED, "")
    write(tmp_path, runtimes.CONTAINERD, text, age=5)
    write(tmp_path, runtimes.SOCKET, "")
    assert asked(shell, tmp_path) == ("", configured), "the toolkit is not complete yet"
    write(tmp_path, runtimes.INSTALLED_LAST, "")
    assert asked(shell, tmp_path) == (DESIRED, configured)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_configuration_that_was_edited_under_containerd_is_not_read(shell: str, tmp_path: Path) -> None:
    write(tmp_path, runtimes.SOCKET, "", age=5)
    write(tmp_path, runtimes.CONTAINERD, V3)
    assert asked(shell, tmp_path) == ("", "")


def test_an_answer_that_is_cut_is_unknown() -> None:
    frame = run("dash", "echo 'installed|'")
    answer = NVIDIA_RUNTIME_KIND.parse(frame, [NvidiaRuntime()])[NvidiaRuntime()]
    assert isinstance(answer, Unknown)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_toolkit_that_does_not_come_is_named(shell: str, tmp_path: Path) -> None:
    script = AwaitToolkit(0).shell().replace(runtimes.TOOLKIT, f"{tmp_path}/toolkit")
    frame = run(shell, script)
    assert frame.rc == 1
    assert b"has not installed" in frame.stderr
    for path in (DESIRED, runtimes.INSTALLED_LAST):
        write(tmp_path, path.replace(runtimes.TOOLKIT, "/toolkit"), "")
    assert run(shell, script).rc == 0


def load(folder: Path, old: str, new: str) -> Inventory:
    assert old in SITE
    path = folder / "site.yaml"
    path.write_text(SITE.replace(old, new))
    return load_inventory(path, environ={})


GPU = "gpu: { toolkit: host, operator: { version: v26.3.3 } }"
ENV = "values: { toolkit: { env: [{ name: CONTAINERD_SOCKET, value: /run/x }] } }"
REFUSED = [
    ("gpu: { toolkit: operator }", "TOOLKIT_NEEDS_OPERATOR"),
    (GPU.replace("v26.3.3", "v1, values: { toolkit: { enabled: true } }"), "TOOLKIT_VALUES_CONFLICT"),
    (GPU.replace("host", "operator").replace("v26.3.3", f"v1, {ENV}"), "TOOLKIT_VALUES_CONFLICT"),
    (GPU.replace("v26.3.3", "v1, values: { cdi: { nriPluginEnabled: true } }"), "CDI_NRI_CONFLICT"),
    (GPU, None),
    (GPU.replace("host", "operator"), None),
    ("gpu: { operator: { version: v26.3.3 } }", None),
]


@pytest.mark.parametrize(("gpu", "code"), REFUSED)
def test_a_toolkit_that_disagrees_with_the_chart_is_refused(
    tmp_path: Path, gpu: str, code: str | None
) -> None:
    findings = toolkit(Evidence(load(tmp_path, GPU, gpu), {}, ()))
    assert [each.code for each in findings if isinstance(each, Diagnostic)] == ([code] if code else [])
