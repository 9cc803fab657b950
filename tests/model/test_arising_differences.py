"""What a step itself brings out of its desired state is corrected in the same run."""

from __future__ import annotations

from pathlib import Path

from provision.api.domains import load_inventory as load
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: one
access: { user: root }
nodes:
  n1:
    address: 198.51.100.1
    host_resources:
      - { kind: package, name: jq }
      - { kind: service, name: jq, running: false, enabled: false }
"""


def test_a_unit_that_a_package_has_brought_is_off_after_the_first_apply(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(INVENTORY)
    site = ModelSite(load(file), tmp_path / "state")
    host = site.hosts["n1/ssh"].state
    host.brings = {"jq": ("jq.service",)}
    report = site.apply()
    assert report.exit_code == 0
    (step,) = (step for step in report.steps if step.changed)
    assert [str(change.key) for change in step.changed] == [
        "n1/ssh:package:jq",
        "n1/ssh:service:jq.service",
    ]
    unit = host.units["jq.service"]
    assert (unit.active, unit.file) == (False, "disabled")
    assert site.apply().exit_code == 0
    assert not [step for step in site.apply().steps if step.changed], "a second apply changes nothing"
