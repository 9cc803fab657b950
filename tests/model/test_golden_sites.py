"""What shipped inventories end in: objects of the cluster and files of nodes, as reviewed golden files.

They were compared with the tables of values and objects for both operators (chart values, policy, pools and
networks, modes of namespaces). To take a change over, read the difference and run with `GOLDEN=write`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.api import Options
from provision.api.domains import effect_classes
from provision.api.support import unsupported
from provision.kube.names import MANAGED_BY, MANAGER
from tests.model.model_site import ModelSite
from tests.model.test_engine_sites import credentials

GOLDEN = Path(__file__).parent / "golden"
FILES = ("/etc/rancher/k3s/config", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/systemd/system")


def _declared(body: dict[str, Any]) -> dict[str, Any]:
    """Return what was declared of an object: no status, and nothing that an API adds."""
    metadata = {key: body["metadata"][key] for key in ("labels", "annotations") if body["metadata"].get(key)}
    kept = {"spec": body["spec"]} if "spec" in body and body["kind"] != "Namespace" else {}
    values = kept.get("spec", {}).get("valuesContent")
    if values is not None:
        kept["spec"] = {**kept["spec"], "valuesContent": json.loads(values)}
    return {**metadata, **kept}


def _state(site: ModelSite) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    for kind in site.cluster.store.kinds.values():
        for body in site.cluster.store.listed(kind):
            metadata = body["metadata"]
            place = "/".join(filter(None, (kind.name, metadata.get("namespace"), metadata["name"])))
            if metadata.get("labels", {}).get(MANAGED_BY) == MANAGER:
                objects[place] = _declared(body)
            elif kind.name == "Node":
                objects[place] = {"labels": metadata["labels"]}
    files = {
        f"{name}:{path}": file.content.decode().splitlines()
        for name, host in site.hosts.items()
        for path, file in host.state.files.items()
        if path.startswith(FILES) and file.type == "file"
    }
    return {"objects": dict(sorted(objects.items())), "files": dict(sorted(files.items()))}


@pytest.mark.parametrize("name", ["homelab", "h100-pair", "h100-kai"])
def test_a_shipped_inventory_ends_in_what_was_reviewed(name: str, tmp_path: Path) -> None:
    site = ModelSite(credentials(name, tmp_path), tmp_path)
    opened = site.site()
    missing = {step for feature in unsupported(opened.inventory) for step in feature.steps}
    steps = tuple(role for role in opened.environment.roles if role not in missing)
    site.apply(Options(steps=steps, allow=frozenset(effect_classes())), ask=site.person)
    text = yaml.safe_dump(_state(site), sort_keys=False, width=110).replace(str(tmp_path), "FOLDER")
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert yaml.safe_load(text) == yaml.safe_load(golden.read_text())
