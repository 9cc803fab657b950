"""Root's own ticket: what no token may do, over the pinned certificate; its password is shown nowhere."""

from __future__ import annotations

import hashlib
import ssl

import pytest
from pydantic import SecretStr

from provision.connections.contracts import ApiError, HttpsEndpoint
from provision.connections.https import PveConnection
from provision.connections.pve_ticket import TicketConnection
from provision.values.errors import Permanent, ProvisionError, Refused, Transient
from tests.contract import test_lab_api_proxmoxer, test_proxmox_connection
from tests.contract.test_lab_api_proxmoxer import Site
from tests.contract.test_proxmox_connection import Server

site = test_lab_api_proxmoxer.site
server, pair = test_proxmox_connection.server, test_proxmox_connection.pair
PASSWORD = "planted root password +&="
CONFIG = "/nodes/pve/qemu/203/config"
TICKET = {
    "data": {"ticket": "PVE:root@pam:AA::x+/=", "CSRFPreventionToken": "AA:csrf", "username": "root@pam"}
}


def endpoint(site: Site) -> HttpsEndpoint:
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(site.ca.read_text())).hexdigest()
    return HttpsEndpoint(f"https://127.0.0.1:{site.port}", "provision@pve!lab", SecretStr(site.token), digest)


def of_server(server: Server, fingerprint: str = "", learnt: list[str] | None = None) -> TicketConnection:
    known: list[str] = [] if learnt is None else learnt
    url = f"https://127.0.0.1:{server.port}"
    given = HttpsEndpoint(url, "a@pve!b", SecretStr("token"), fingerprint or server.fingerprint)
    return TicketConnection(given, lambda: SecretStr(PASSWORD), known.append, "pve")


def test_root_passes_and_removes_a_card_that_the_token_may_not_touch(site: Site) -> None:
    token = PveConnection(endpoint(site), "pve")
    root = TicketConnection(endpoint(site), lambda: SecretStr(site.password), lambda _: None, "pve")
    upid = token.request("POST", "/nodes/pve/qemu", {"vmid": 203, "name": "vm-gpu", "machine": "q35"})
    site.lab.tasks.wait(str(upid), 20)
    card = {"hostpci0": "0000:01:00,pcie=1"}
    with pytest.raises(ApiError, match="only root can set 'hostpci0' config for non-mapped devices"):
        token.request("PUT", CONFIG, card)
    root.request("PUT", CONFIG, card)
    config = token.request("GET", CONFIG)
    assert isinstance(config, dict)
    assert config["hostpci0"] == "0000:01:00,pcie=1"
    with pytest.raises(ApiError, match="only root can set"):
        token.request("PUT", CONFIG, {"delete": "hostpci0"})
    root.request("PUT", CONFIG, {"delete": "hostpci0"})
    config = token.request("GET", CONFIG)
    assert isinstance(config, dict)
    assert "hostpci0" not in config


def test_a_wrong_password_is_said_without_it(site: Site) -> None:
    root = TicketConnection(endpoint(site), lambda: SecretStr(PASSWORD), lambda _: None, "pve")
    with pytest.raises(Permanent) as caught:
        root.request("PUT", CONFIG, {"hostpci0": "0000:01:00"})
    (problem,) = caught.value.diagnostics
    assert problem.code == "ROOT_LOGIN_FAILED"
    assert "`api.root_password`" in problem.remedy
    assert PASSWORD not in f"{problem} {caught.value}"


def test_the_password_is_sent_once_to_the_pinned_certificate_alone(server: Server) -> None:
    learnt: list[str] = []
    server.answers = [(200, "OK", TICKET)]
    root = of_server(server, learnt=learnt)
    root.request("PUT", CONFIG, {"hostpci0": "x"})
    root.request("PUT", CONFIG, {"hostpci0": "y"})
    assert [path for _, path, _, _ in server.seen] == [
        "/api2/json/access/ticket",
        *[f"/api2/json{CONFIG}"] * 2,
    ]
    assert [authorization for *_, authorization in server.seen] == [""] * 3
    assert learnt == ["PVE:root@pam:AA::x+/=", "AA:csrf"]
    server.seen.clear()
    with pytest.raises(Refused):
        of_server(server, ":".join(["AB"] * 32)).request("PUT", CONFIG, {"hostpci0": "x"})
    assert server.seen == []


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((401, "authentication failure", {"data": None}), Permanent, "authentication failure"),
        ((200, "OK", {"data": {"ticket": "PVE:!tfa!x", "NeedTFA": 1}}), Permanent, "second factor"),
        ((200, "OK", {"data": {"username": "root@pam"}}), Permanent, "no ticket"),
        ((200, "OK", {"data": [1]}), Permanent, "no ticket"),
        (
            (200, "OK", {"data": {"ticket": "PVE:a\r\nX: y", "CSRFPreventionToken": "t"}}),
            Permanent,
            "no ticket",
        ),
        ((200, "OK", {"data": {"ticket": "PVE:a", "CSRFPreventionToken": "\u20ac"}}), Permanent, "no ticket"),
        ((500, "no such realm", {"data": None}), Permanent, "no such realm"),
        ((0, "", None), Transient, "may have taken effect"),
        ((595, "no route", {"data": None}), Transient, "what is behind it"),
    ],
)
def test_a_login_that_fails_passes_nothing(
    server: Server, answer: tuple[int, str, object], error: type[ProvisionError], words: str
) -> None:
    server.answers = [answer]
    with pytest.raises(error) as caught:
        of_server(server).request("PUT", CONFIG, {"hostpci0": "x"})
    assert words in str(caught.value.diagnostics[0])
    assert len(server.seen) == 1


def test_a_ticket_that_ended_is_asked_for_again_once(server: Server) -> None:
    ended = (401, "permission denied - invalid PVE ticket", {"data": None})
    server.answers = [(200, "OK", TICKET), (200, "OK", {"data": 1}), ended, (200, "OK", TICKET)]
    server.answers += [(200, "OK", {"data": 2})]
    root = of_server(server)
    assert [root.request("PUT", CONFIG, {"hostpci0": "x"}) for _ in range(2)] == [1, 2]
    assert [path.rpartition("/")[2] for _, path, *_ in server.seen] == [
        *("ticket", "config"),
        *("config", "ticket", "config"),
    ]
    server.seen.clear()
    server.answers = [ended, (401, "authentication failure", {"data": None})]
    with pytest.raises(Permanent, match="ROOT_LOGIN_FAILED"):
        root.request("PUT", CONFIG, {"hostpci0": "x"})
    assert len(server.seen) == 2, "a password that is wrong now is sent once"
