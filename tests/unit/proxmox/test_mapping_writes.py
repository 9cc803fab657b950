from __future__ import annotations

from collections.abc import Mapping

import pytest

from provision.connections.contracts import ApiError
from provision.contracts.change import Key
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import ApiCall, Request
from provision.proxmox import mapping_writes
from provision.proxmox.queries import PciMap
from provision.testing.model_proxmox import ModelProxmox
from provision.values.cancel import Cancel

PATH = "/cluster/mapping/pci"
OURS, OTHERS = "node=pve1,path=0000:02:00,id=10de:2204", "node=pve2,path=0000:03:00,id=10de:2204"
CREATE = Request("POST", PATH, {"id": "gpu", "description": "ours", "map": [OURS]})
UPDATE = Request("PUT", f"{PATH}/gpu", {"map": [OURS], "digest": "stale"})
OURS_TOO = "node=pve1,path=0000:04:00,id=10de:2204"
POOL = Request("PUT", f"{PATH}/gpu", {"map": [OURS, OURS_TOO], "digest": "stale"})
REMOVE = Request("PUT", f"{PATH}/gpu", {"map": [OTHERS], "digest": "stale"})


@pytest.mark.parametrize(
    ("request_", "present", "entries"),
    [
        (CREATE, [OTHERS], [OTHERS, OURS]),
        (UPDATE, [OTHERS], [OTHERS, OURS]),
        (UPDATE, ["node=pve1,path=0000:09:00"], [OURS]),
        (UPDATE, [], [OURS]),
        (POOL, [OTHERS, OURS], [OTHERS, OURS, OURS_TOO]),
        (REMOVE, [OTHERS, OURS], [OTHERS]),
        (REMOVE, [OURS], None),
        (Request("DELETE", f"{PATH}/gpu"), [], None),
    ],
)
def test_a_write_that_lost_a_race_keeps_what_the_other_node_wrote(
    request_: Request, present: list[str], entries: list[str] | None
) -> None:
    pve = ModelProxmox(node="pve1")
    if present:
        pve.mappings["gpu"] = list(present)
    action = Action(Key("pve1/api", "mapping", "gpu"), "gpu", ApiCall((request_,)))
    if not present and request_.method == "DELETE":
        pve.faults["DELETE", f"{PATH}/gpu"] = ApiError(500, "pci ID 'gpu' does not exist")
    (result,) = pve.driver("pve1/api").act("run", [action], (), lambda _: None, Cancel())
    assert result.verdict is Verdict.DONE, result.diagnostic
    assert pve.mappings.get("gpu") == entries


def test_a_race_that_never_ends_is_given_up() -> None:
    class Busy(ModelProxmox):
        def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
            if method == "PUT":
                self.mappings["gpu"].append(f"node=pve{len(self.mappings['gpu']) + 5}")
            return super().request(method, path, data)

    busy = Busy(node="pve1", mappings={"gpu": [OTHERS]})
    action = Action(Key("pve1/api", "mapping", "gpu"), "gpu", ApiCall((UPDATE,)))
    (result,) = busy.driver("pve1/api").act("run", [action], (), lambda _: None, Cancel())
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert "detected modified configuration" in result.diagnostic.summary


def test_other_refusals_and_paths_are_no_race() -> None:
    assert not mapping_writes.is_race(UPDATE, "Permission check failed")
    assert not mapping_writes.is_race(Request("PUT", "/nodes/a/qemu/1/config"), "does not exist")
    merged = mapping_writes.again(UPDATE, [PciMap("gpu", (OTHERS,), digest="d")], "pve1")
    assert merged == Request("PUT", f"{PATH}/gpu", {"map": [OTHERS, OURS], "digest": "d"})
