"""A whole site whose router is reached by its web API, over real HTTPS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.api.support import untested
from provision.connections.contracts import Endpoint, WebEndpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.values.errors import Refused
from provision.values.outcomes import ExitCode
from tests.contract.router_benches import SECRET, USER, OpnSenseBench, PiHoleBench, WebBench
from tests.model.model_site import Counted, ModelSite
from tests.model.test_manual_dhcp import INVENTORY

API = (
    'backend: {backend}, api: {{ url: "{url}", user: {user}, token: !secret {{ file: {folder}/token }},'
    ' fingerprint: "{pin}" }}'
)


class Router(OpnSenseBench):
    """Every client asks for its address at once."""

    def _read(self, verb: str) -> Any:
        self.leased = self.served
        return super()._read(verb)


class PiHole(PiHoleBench):
    """Every client asks for its address at once."""

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        rows = [line.split(",") for line in self.hosts]
        self.leased = [
            {"hwaddr": row[0], "ip": row[-2], "name": row[-1], "expires": 0, "clientid": "*"} for row in rows
        ]
        return super().answer(method, path, body, headers)


class Routed(ModelSite):
    """A site with a stand-in for a router."""

    router: Any

    def open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if isinstance(endpoint, WebEndpoint):
            return Counted(self.router.open(endpoint))
        return super().open(spec, endpoint)


@contextmanager
def routed(router: WebBench, folder: Path) -> Iterator[Routed]:
    for name, text in {
        "key": "not a real key\n",
        "key.pub": "ssh-ed25519 AAAA me\n",
        "token": SECRET,
    }.items():
        (folder / name).write_text(text)
    with closing(router):
        pin = router.endpoint.fingerprint.upper()
        pinned = ":".join(pin[at : at + 2] for at in range(0, len(pin), 2))
        api = API.format(
            backend=router.backend, url=router.endpoint.url, user=USER, folder=folder, pin=pinned
        )
        text = INVENTORY.replace("backend: manual, order: @ORDER", api).replace("@FOLDER", str(folder))
        text = (
            text.replace("@SHA", "a" * 64).replace("@PRINT", ":".join(["AA"] * 32)).replace("@KEY", "A" * 43)
        )
        (folder / "home.yaml").write_text(text)
        site = Routed(load(folder / "home.yaml"), folder / "state")
        site.router = router
        yield site


@pytest.fixture(autouse=True)
def quick_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Routed]:
    router = Router(tmp_path)
    router.subnet_of = "10.0.0.0/24"
    with routed(router, tmp_path) as site:
        yield site


@pytest.fixture
def pihole(tmp_path: Path) -> Iterator[Routed]:
    router = PiHole(tmp_path)
    router.dhcp["start"] = "10.0.0.100"
    with routed(router, tmp_path) as site:
        yield site


def test_vms_get_reserved_addresses_and_a_second_run_changes_nothing(site: Routed) -> None:
    assert site.apply().exit_code == ExitCode.DONE
    assert sorted(site.router.served.values()) == ["10.0.0.11", "10.0.0.12", "10.0.0.5"]
    writes = [path for method, path, _ in site.router.asked if method != "GET"]
    assert site.plan().empty
    assert site.apply().exit_code == ExitCode.DONE
    assert [path for method, path, _ in site.router.asked if method != "GET"] == writes


def test_the_checks_read_reservations_and_leases_by_themselves(site: Routed) -> None:
    assert site.apply().exit_code == ExitCode.DONE
    site.verifier = None
    proven = address_outcomes(site)
    assert (len(proven), set(proven.values())) == (5, {"proven"}), proven
    site.router.entries.clear()
    site.router.served.clear()
    assert set(address_outcomes(site).values()) == {"failed"}


def address_outcomes(site: Routed) -> dict[tuple[str, str], str]:
    names = ("test_address_is_leased", "test_address_is_reserved")
    return {
        (check.check, check.subject): str(check.outcome)
        for check in site.verify().checks
        if check.check in names
    }


def test_a_pihole_keeps_reservations_that_the_checks_read_by_themselves(pihole: Routed) -> None:
    assert pihole.apply().exit_code == ExitCode.DONE
    assert pihole.plan().empty
    pihole.verifier = None
    proven = address_outcomes(pihole)
    assert (len(proven), set(proven.values())) == (5, {"proven"}), proven
    pihole.router.hosts.clear()
    assert set(address_outcomes(pihole).values()) == {"failed"}
    assert any("pihole" in note.summary for note in untested(pihole.inventory))


def test_a_reservation_that_is_not_read_back_stops_before_the_vm_boots(
    site: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(*_request: Any) -> Any:
        return 200, {"result": "saved", "status": "ok"}

    monkeypatch.setattr(site.router, "_change", forgetful)
    report = site.apply()
    codes = {problem.code for step in report.steps for problem in step.diagnostics}
    assert (report.exit_code, "NOT_AS_DESIRED" in codes) == (ExitCode.ERROR, True), codes
    assert site.apis["pve/api"].vms == {}


def test_destroy_frees_our_reservations_and_no_other(site: Routed) -> None:
    site.router.entries["by-hand"] = {
        "hw_address": "52:54:00:aa:bb:01",
        "ip_address": "10.0.0.40",
        "hostname": "nas",
        "description": "mine",
        "subnet": site.router.subnet,
    }
    assert site.apply().exit_code == ExitCode.DONE
    assert site.destroy().exit_code == ExitCode.DONE
    assert list(site.router.entries) == ["by-hand"]


def test_no_file_of_the_controller_holds_the_secret(site: Routed, tmp_path: Path) -> None:
    site.apply()
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_validate_says_that_nobody_has_run_it(site: Routed) -> None:
    assert any("opnsense" in note.summary for note in untested(site.inventory))


def test_an_address_is_never_left_unreserved_in_silence(site: Routed) -> None:
    files = site.hosts["pve/ssh"].state.files
    kept = files.pop("/sys/class/net/vmbr0/address")
    with pytest.raises(Refused) as caught:
        site.apply()
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["MAC_UNKNOWN"]
    files["/sys/class/net/vmbr0/address"] = kept
    assert site.apply().exit_code == ExitCode.DONE
