"""Stand-ins for routers with a web API: what their documentation says that they answer, over real HTTPS.

OPNsense: docs.opnsense.org, "Use the API" and "Kea" below "Core API"; opnsense/core,
`Kea/Api/Dhcpv4Controller.php`, `Kea/Api/Leases4Controller.php`, `Kea/KeaDhcpv4.xml` and
`Base/ApiMutableModelControllerBase.php` (`setBase`, `delBase`, `searchBase`). UniFi: ubntwiki.com, "UniFi
Controller API"; Art-of-WiFi/UniFi-API-client, `login`, `edit_client_fixedip`. RouterOS: help.mikrotik.com,
"REST API" and "DHCP". Pi-hole: pi-hole/FTL, `src/api/docs/content/specs/` (`auth.yaml`, `config.yaml`,
`dhcp.yaml`), `src/api/config.c` and `src/api/dhcp.c`. Proxmox VE's SDN: pve-network,
`PVE/API2/Network/SDN/Ips.pm`, `Ipams.pm`, `PVE/Network/SDN/Ipams/PVEPlugin.pm`. No real one was at hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from provision.connections.contracts import WebEndpoint
from provision.connections.web import HttpsWebConnection
from provision.contracts.change import Key
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import ApiCall, Fix
from provision.contracts.resource import Resource, ask
from provision.contracts.snapshot import Snapshot
from provision.dhcp.backends.opnsense import OpnSense
from provision.dhcp.backends.pihole import PiHole
from provision.dhcp.backends.proxmox_sdn import ProxmoxSdn
from provision.dhcp.backends.routeros import RouterOs
from provision.dhcp.backends.unifi import UniFi
from provision.dhcp.contract import Reservation, Router
from provision.dhcp.router_driver import RouterDriver
from provision.dhcp.router_sessions import session_of
from provision.values.cancel import Cancel
from provision.values.redaction import Redactor
from tests.contract.certificates import Authority

PREFIX = "provision-lab-"
USER, SECRET = "provision", "planted-secret"
Reply = tuple[int, Any]


class WebBench:
    """One stand-in, and the driver that speaks to it."""

    backend = ""

    def __init__(self, folder: Path, router: Router, user: str = USER) -> None:
        self.router = router
        self.asked: list[tuple[str, str, Any]] = []
        """Method, path and body of each request."""
        self.cookies: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        """What each answer has."""
        self.query = ""
        """The query string of the request that is answered."""
        certificate, key = Authority().issue("router", "127.0.0.1")
        (folder / "router.pem").write_text(f"{certificate}\n{key}\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "router.pem")
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.redactor = Redactor()
        url = f"https://127.0.0.1:{self.server.server_address[1]}"
        self.endpoint = WebEndpoint(url, user, SecretStr(SECRET), digest)
        self.driver = self.open(self.endpoint)

    def open(self, endpoint: WebEndpoint) -> RouterDriver:
        session = session_of(self.backend, HttpsWebConnection(endpoint, "router"), endpoint, self.redactor)
        return RouterDriver(self.router.system, session)

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        """Return status and JSON of a request; status 0: the connection breaks without an answer."""
        raise NotImplementedError

    def reserve(self, reservation: Reservation) -> None:
        """Make a reservation as somebody else does."""
        raise NotImplementedError

    def ask(self, resource: Resource) -> Snapshot:
        return self.driver.answer(frozenset(ask([resource])), Cancel())

    def act(self, fix: Fix | ApiCall) -> None:
        assert isinstance(fix, ApiCall)
        action = Action(Key("router", "dhcp-reservation", "x"), "reserve", fix)
        (result,) = self.driver.act("run", [action], [], lambda _line: None, Cancel())
        assert result.verdict is Verdict.DONE, result.diagnostic

    def close(self) -> None:
        self.driver.close()
        self.server.shutdown()
        self.server.server_close()


def _handler(bench: WebBench) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(text) if text else None
            path, bench.query = urlsplit(self.path).path, urlsplit(self.path).query
            bench.asked.append((self.command, path, body))
            status, answer = bench.answer(self.command, path, body, self.headers)  # type: ignore[arg-type]  # a mapping
            if not status:
                self.close_connection = True
                return
            content = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in bench.cookies.items():
                self.send_header("Set-Cookie", f"{name}={value}; path=/; secure; httponly")
            for name, value in bench.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the server's names

        def log_message(self, *_args: Any) -> None:
            pass

    return Handler


def is_authorized(headers: Mapping[str, str]) -> bool:
    """Whether a request has the name and the secret."""
    expected = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    return headers.get("Authorization") == f"Basic {expected}"


class OpnSenseBench(WebBench):
    """OPNsense with Kea; what is written is served after a `reconfigure`."""

    backend = "opnsense"
    subnet = "3f6c2c3e-0000-4000-8000-000000000001"
    subnet_of = "198.51.100.0/24"

    def __init__(self, folder: Path) -> None:
        self.general = {"enabled": "1", "manual_config": "0", "interfaces": {"lan": {"selected": 1}}}
        self.entries: dict[str, dict[str, str]] = {}
        self.served: dict[str, str] = {}
        """What Kea gives out: address by MAC."""
        self.leased: dict[str, str] = {}
        self.reload = "ok"
        super().__init__(folder, OpnSense("router", PREFIX))

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        if not is_authorized(headers):
            return 401, {"status": 401, "message": "Authentication Failed"}
        verb, _, argument = path.removeprefix("/api/kea/").partition("/")[2].partition("/")
        return self._read(verb) if method == "GET" else self._change(verb, argument, body)

    def _read(self, verb: str) -> Reply:
        rows: dict[str, list[Any]] = {
            "searchSubnet": [{"uuid": self.subnet, "subnet": self.subnet_of, "description": ""}],
            "searchReservation": [{"uuid": name, **entry} for name, entry in self.entries.items()],
            "search": [
                {"hwaddr": mac, "address": address, "hostname": "", "expire": 0, "state": 0}
                for mac, address in self.leased.items()
            ],
        }
        if verb == "get":
            return 200, {"dhcpv4": {"general": self.general, "this_hostname": "opnsense"}}
        found = rows[verb]
        return 200, {"total": len(found), "rowCount": len(found), "current": 1, "rows": found}

    def _change(self, verb: str, argument: str, body: Any) -> Reply:
        if body is None:
            return 400, {"status": 400, "message": "Invalid JSON syntax"}
        if verb == "reconfigure":
            self.served = {
                entry["hw_address"].lower(): entry["ip_address"] for entry in self.entries.values()
            }
            return 200, {"status": self.reload}
        if verb == "delReservation":
            return 200, {"result": "deleted" if self.entries.pop(argument, None) else "not found"}
        if verb == "setReservation":
            return 200, self._write(argument, body["reservation"])
        return 404, {"errorMessage": "Endpoint not found"}

    def _write(self, name: str, fields: dict[str, str]) -> dict[str, Any]:
        entry = {**self.entries.get(name, {}), **fields}
        others = [other for key, other in self.entries.items() if key != name]
        wrong = {}
        if entry["subnet"] != self.subnet:
            wrong["reservation.subnet"] = "Related subnet not found."
        for key in ("ip_address", "hw_address"):
            if entry[key].lower() in {other[key].lower() for other in others}:
                wrong[f"reservation.{key}"] = "Duplicate entry exists."
        if wrong:
            return {"result": "failed", "validations": wrong}
        self.entries[name] = entry
        return {"result": "saved"}

    def reserve(self, reservation: Reservation) -> None:
        fields = {"hw_address": reservation.mac, "ip_address": reservation.address}
        fields |= {"hostname": reservation.name, "description": "by hand", "subnet": self.subnet}
        self.entries[str(uuid.uuid4())] = fields


class UniFiBench(WebBench):
    """UniFi Network; `console` decides whether paths have a prefix, and where the login is."""

    backend = "unifi"
    console = True

    def __init__(self, folder: Path, user: str = USER) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.csrf = "csrf-1"
        self.logins = 0
        self.dhcp = True
        super().__init__(folder, UniFi("router", PREFIX, "default"), user)

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        login, prefix = ("/api/auth/login", "/proxy/network") if self.console else ("/api/login", "")
        if path == "/":
            return (200 if self.console else 302), None
        if path == login and method == "POST":
            if body != {"username": USER, "password": SECRET}:
                return (403 if self.console else 400), {"meta": {"rc": "error", "msg": "api.err.Invalid"}}
            self.logins += 1
            self.cookies = {"TOKEN" if self.console else "unifises": f"cookie-{self.logins}"}
            self.renew(self.csrf)
            return 200, {"meta": {"rc": "ok"}, "data": []}
        is_key = headers.get("X-API-KEY") == SECRET and self.console
        if not is_key and f"=cookie-{self.logins}" not in headers.get("Cookie", ""):
            return 401, {"meta": {"rc": "error", "msg": "api.err.LoginRequired"}, "data": []}
        if method != "GET" and not is_key and headers.get("X-CSRF-Token") != self.csrf:
            return 403, {"meta": {"rc": "error", "msg": "api.err.NoPermission"}, "data": []}
        return self._object(method, path.removeprefix(f"{prefix}/api/s/default/"), body)

    def renew(self, csrf: str) -> None:
        """Want another CSRF token from now on: a console gives it in a header, a server in a cookie."""
        self.csrf = csrf
        if self.console:
            self.headers = {"X-Updated-CSRF-Token" if self.headers else "X-CSRF-Token": csrf}
        else:
            self.cookies["csrf_token"] = csrf

    def _object(self, method: str, path: str, body: Any) -> Reply:
        networks = [
            {"_id": "net0", "purpose": "wan", "x_wan_password": "isp-secret"},
            {
                "_id": "net1",
                "ip_subnet": "198.51.100.1/24",
                "dhcpd_enabled": self.dhcp,
                "purpose": "corporate",
            },
        ]
        lists = {"rest/user": list(self.users.values()), "rest/networkconf": networks, "stat/sta": []}
        if method == "GET" and path in lists:
            return 200, {"meta": {"rc": "ok"}, "data": lists[path]}
        name = path.removeprefix("rest/user").strip("/")
        if method == "POST" and any(user["mac"].lower() == body["mac"] for user in self.users.values()):
            return 400, {"meta": {"rc": "error", "msg": "api.err.MacUsed"}, "data": []}
        if body.get("use_fixedip") and body.get("network_id") != "net1":
            return 400, {"meta": {"rc": "error", "msg": "api.err.InvalidNetworkId"}, "data": []}
        name = name or f"user{len(self.users)}"
        self.users[name] = {**self.users.get(name, {"_id": name}), **body}
        return 200, {"meta": {"rc": "ok"}, "data": [self.users[name]]}

    def reserve(self, reservation: Reservation) -> None:
        fixed = {"use_fixedip": True, "fixed_ip": reservation.address, "network_id": "net1"}
        self.know({"mac": reservation.mac, "name": reservation.name, **fixed})

    def know(self, client: dict[str, Any]) -> None:
        """Add a client as the console does that has seen it."""
        name = f"user{len(self.users)}"
        self.users[name] = {"_id": name, **client}


class UniFiServerBench(UniFiBench):
    """The server of its own, without a console."""

    console = False


class UniFiKeyBench(UniFiBench):
    """A console, with a key of the API."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, user="")


class RouterOsBench(WebBench):
    """RouterOS 7: all values are texts."""

    backend = "routeros"

    def __init__(self, folder: Path) -> None:
        self.leases: dict[str, dict[str, str]] = {}
        self.servers = [{".id": "*1", "name": "lan", "disabled": "false"}]
        super().__init__(folder, RouterOs("router", PREFIX))

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        if not is_authorized(headers):
            return 401, {"error": 401, "message": "Unauthorized"}
        if path == "/rest/ip/dhcp-server":
            return 200, self.servers
        name = path.removeprefix("/rest/ip/dhcp-server/lease").strip("/")
        if method == "GET":
            return 200, list(self.leases.values())
        if method == "DELETE":
            return (
                (204, None) if self.leases.pop(name, None) else (404, {"error": 404, "message": "Not Found"})
            )
        name = name or f"*{len(self.leases) + 0xA1:X}"
        others = [lease for key, lease in self.leases.items() if key != name]
        if any(lease["mac-address"] == body["mac-address"] for lease in others):
            detail = "failure: already have static lease with this MAC address"
            return 400, {"error": 400, "message": "Bad Request", "detail": detail}
        self.leases[name] = {**self.leases.get(name, {".id": name, "dynamic": "false"}), **body}
        return (201 if method == "PUT" else 200), self.leases[name]

    def reserve(self, reservation: Reservation) -> None:
        self.lease(reservation, dynamic="false")

    def lease(self, reservation: Reservation, **more: str) -> None:
        """Add a lease as a person does, or as the server does for a client."""
        name = f"*{len(self.leases) + 1:X}"
        fields = {"mac-address": reservation.mac.upper(), "address": reservation.address}
        self.leases[name] = {".id": name, **fields, "comment": reservation.name, **more}


class PiHoleBench(WebBench):
    """Pi-hole 6: FTL restarts with a write, which breaks the next connection, and it forgets its sessions."""

    backend = "pihole"

    def __init__(self, folder: Path) -> None:
        self.hosts: list[str] = []
        self.leased: list[dict[str, Any]] = []
        self.dhcp: dict[str, Any] = {"active": True, "start": "198.51.100.100", "end": "198.51.100.200"}
        self.dhcp |= {"router": "198.51.100.1", "netmask": "255.255.255.0"}
        self.sessions: set[str] = set()
        self.restarts = 0
        self._is_restarting = False
        super().__init__(folder, PiHole("router", PREFIX), user="")

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        if self._is_restarting and method == "GET":
            self._is_restarting = False
            self.sessions.clear()
            return 0, None
        sid = headers.get("X-FTL-SID") or ""
        if path == "/api/auth":
            return self._log_in(body) if method == "POST" else self._log_out(sid)
        if sid not in self.sessions:
            return 401, {"error": {"key": "unauthorized", "message": "Unauthorized", "hint": None}}
        if path == "/api/dhcp/leases":
            return 200, {"leases": self.leased, "took": 0.001}
        if method == "GET":
            kept = {"hosts": self.hosts} if path.endswith("/hosts") else {**self.dhcp, "hosts": self.hosts}
            return 200, {"config": {"dhcp": kept}, "took": 0.001}
        return self._change(method, unquote(path.removeprefix("/api/config/dhcp/hosts/")))

    def _log_in(self, body: Any) -> Reply:
        session: dict[str, Any] = {"valid": False, "totp": False, "sid": None, "validity": -1}
        if body != {"password": SECRET}:
            return 401, {"session": {**session, "message": "password incorrect"}, "took": 0.2}
        sid = base64.b64encode(f"session-{len(self.asked)}".encode()).decode()
        self.sessions.add(sid)
        session |= {"valid": True, "sid": sid, "validity": 1800, "message": "password correct"}
        return 200, {"session": session, "took": 0.2}

    def _log_out(self, sid: str) -> Reply:
        if sid not in self.sessions:
            return 401, {"error": {"key": "unauthorized", "message": "Unauthorized", "hint": None}}
        self.sessions.remove(sid)
        return 204, None

    def _change(self, method: str, line: str) -> Reply:
        if method == "PUT" and line in self.hosts:
            hint = "Uniqueness of items is enforced"
            return 400, {"error": {"key": "bad_request", "message": "Item already present", "hint": hint}}
        if method == "DELETE" and line not in self.hosts:
            return 404, {"took": 0.001}
        self.hosts = [host for host in self.hosts if host != line] + [line] * (method == "PUT")
        if self.query != "restart=false":
            self.restarts += 1
            self._is_restarting = True
        return (201, {"took": 0.1}) if method == "PUT" else (204, None)

    def reserve(self, reservation: Reservation) -> None:
        self.hosts.append(f"{reservation.mac},{reservation.address},{reservation.name}")


class SdnBench(WebBench):
    """Proxmox VE's IPAM: addresses by MAC, which is compared letter by letter."""

    backend = "proxmox_sdn"

    def __init__(self, folder: Path) -> None:
        self.ips: dict[str, dict[str, Any]] = {}
        self.zone: dict[str, Any] = {"zone": "lab", "type": "simple", "dhcp": "dnsmasq", "ipam": "pve"}
        super().__init__(folder, ProxmoxSdn("router", PREFIX, "vlab"))

    def answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        if headers.get("Authorization") != f"PVEAPIToken={USER}={SECRET}":
            return 401, {"data": None, "message": "no such token"}
        path = path.removeprefix("/api2/json/cluster/sdn/")
        entries = [{"ip": ip, "zone": "lab", "vnet": "vlab", **entry} for ip, entry in self.ips.items()]
        subnet = {"subnet": "lab-198.51.100.0-24", "cidr": "198.51.100.0/24", "vnet": "vlab", "zone": "lab"}
        lists: dict[str, list[Any]] = {
            "vnets": [{"vnet": "vlab", "zone": "lab", "type": "vnet"}],
            "zones": [self.zone],
            "vnets/vlab/subnets": [subnet],
            "ipams/pve/status": entries,
        }
        if method == "GET":
            return 200, {"data": lists[path]}
        if path != "vnets/vlab/ips":
            return 501, {"data": None, "message": f"Method '{method} {path}' not implemented"}
        return self._change(method, body or dict(parse_qsl(self.query)))

    def _change(self, method: str, data: dict[str, Any]) -> Reply:
        if set(data) - {"zone", "mac", "ip", "vmid"} or data["zone"] != "lab":
            return 400, {"data": None, "message": "Parameter verification failed.", "errors": {"zone": "no"}}
        if method in ("PUT", "DELETE"):
            self.ips = {ip: entry for ip, entry in self.ips.items() if entry.get("mac") != data["mac"]}
        if method == "DELETE":
            return 200, {"data": None}
        if data["ip"] in self.ips:
            return 500, {"data": None, "message": f"IP '{data['ip']}' already exist\n"}
        self.ips[data["ip"]] = {key: data[key] for key in ("mac", "vmid") if key in data}
        return 200, {"data": None}

    def reserve(self, reservation: Reservation) -> None:
        self.ips[reservation.address] = {"mac": reservation.mac.upper(), "hostname": reservation.name}


ROUTERS: dict[str, type[Any]] = {
    "opnsense": OpnSenseBench,
    "unifi": UniFiBench,
    "unifi without a console": UniFiServerBench,
    "unifi by key": UniFiKeyBench,
    "routeros": RouterOsBench,
    "pihole": PiHoleBench,
    "proxmox_sdn": SdnBench,
}
