"""Values of an operator against its chart's own: a path that no template reads is refused by its name."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.api.domains import load_inventory
from provision.contracts.rule import Evidence
from provision.inventory.lock import Lock, Pin, write_lock
from provision.kube.chart_archive import defaults_of
from provision.kube.preflight import RULES
from provision.values.diagnostics import Diagnostic

CHART = "apiVersion: v2\nname: gpu-operator\nversion: v26.3.1\n"
VALUES = """
driver:
  enabled: true
  # rdma:
  #   enabled: true
  env: []
labels: {}
nfd-alias:
  enabled: true
"""
DEPENDENCY = "dependencies: [{ name: nfd, alias: nfd-alias }]\n"
SUB = {"nfd/Chart.yaml": "name: nfd\n", "nfd/values.yaml": "worker: { port: 1 }\n"}
SITE = """
version: 1
name: site
cluster: {{ kubeconfig: /nowhere }}
gpu:
  toolkit: host
  operator:
    version: v26.3.1
    {chart}
    values: {values}
"""


def packed(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def archive(*, folded: bool = False) -> bytes:
    own: dict[str, str | bytes] = {"g/Chart.yaml": CHART + DEPENDENCY, "g/values.yaml": VALUES}
    if folded:
        return packed({**own, "g/charts/nfd-0.1.0.tgz": packed({**SUB})})
    return packed({**own, **{f"g/charts/{name}": text for name, text in SUB.items()}})


def findings(folder: Path, values: str, chart: str = "chart: ./chart.tgz") -> list[Diagnostic]:
    file = folder / "site.yaml"
    file.write_text(SITE.format(values=values, chart=chart))
    evidence = Evidence(load_inventory(file, environ={}), {}, ())
    found = [finding for rule in RULES for finding in rule.check(evidence)]
    return [finding for finding in found if isinstance(finding, Diagnostic)]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("values", "unknown"),
    [
        ("{ driver: { enabled: false, env: [1] }, labels: { any: thing } }", ""),
        ("{ driver: { rdma: { enabled: true } }, global: { x: 1 } }", ""),
        ("{ nfd-alias: { worker: { port: 2 } } }", ""),
        ("{ driver: { enbled: true } }", "driver.enbled"),
        ("{ nfd-alias: { worker: { prt: 2 } } }", "nfd-alias.worker.prt"),
        ("{ nfd: { worker: { port: 2 } } }", "nfd"),
    ],
)
def test_a_value_that_the_chart_does_not_have_is_named(
    tmp_path: Path, values: str, unknown: str, folded: bool
) -> None:
    (tmp_path / "chart.tgz").write_bytes(archive(folded=folded))
    summary = f"gpu.operator.values: gpu-operator v26.3.1 has no value {unknown}"
    found = findings(tmp_path, values)
    assert [(one.code, one.summary) for one in found] == (
        [("CHART_VALUE_UNKNOWN", summary)] if unknown else []
    )


def test_the_refusal_has_its_line_and_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "chart.tgz").write_bytes(archive())
    found = findings(tmp_path, "{ driver: { enbled: true } }")[0]
    assert found.source is not None
    assert found.source.text.endswith("values: { driver: { enbled: true } }")
    assert "Did you mean enabled?" in found.remedy


def test_a_pinned_chart_is_compared_where_it_was_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content = archive()  # gzip writes the time into it
    digest = hashlib.sha256(content).hexdigest()
    pin = Pin("https://example.org/gpu-operator-v26.3.1.tgz", digest)
    write_lock(tmp_path / "provision.lock.yaml", Lock(charts={"gpu-operator": pin}))
    assert findings(tmp_path, "{ drivers: {} }", "nfd: true") == []
    cache = tmp_path / "provision" / "downloads"
    cache.mkdir(parents=True)
    (cache / digest).write_bytes(content)
    assert [one.code for one in findings(tmp_path, "{ drivers: {} }", "nfd: true")] == ["CHART_VALUE_UNKNOWN"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        gzip.compress(b"no tar"),
        packed({"g/values.yaml": VALUES}),
        packed({"g/Chart.yaml": CHART, "g/values.yaml": "a: ["}),
        packed({"g/Chart.yaml": CHART, "g/values.yaml": "- list"}),
        archive()[:200],
    ],
    ids=["empty", "text", "no tar", "no Chart.yaml", "invalid values", "values are a list", "cut"],
)
def test_what_is_no_chart_refuses_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "chart.tgz").write_bytes(data)
    assert findings(tmp_path, "{ drivers: {} }") == []


def test_a_chart_without_values_accepts_anything() -> None:
    defaults = defaults_of(packed({"g/Chart.yaml": CHART}))
    assert defaults is not None
    assert list(defaults.unknown({"a": {"b": 1}})) == []


@settings(max_examples=25)
@given(st.binary(max_size=200), st.binary(max_size=60))
def test_the_reader_is_total(data: bytes, text: bytes) -> None:
    defaults_of(data)
    defaults_of(gzip.compress(data))
    defaults_of(packed({"g/Chart.yaml": text, "g/values.yaml": data, "g/charts/x-1.tgz": data}))
