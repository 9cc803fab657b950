"""The program that asks and changes Kea on its own host, through its control socket.

Its text is sent to `python3 -` on the router, so that no configuration (it may hold passwords of databases)
leaves the router. Nothing of this package is imported. Sources: Kea's administrator manual, chapters
"Management API", "Host commands" and "Lease commands"; answers of 2.2.0.
"""

from __future__ import annotations

TEXT = r"""
import csv, ipaddress, json, os, socket, sys

SOCKET = os.environ["PROVISION_SOCKET"]
OK, UNSUPPORTED, EMPTY = 0, 2, 3


def ask(command, arguments=None, accepted=(OK, EMPTY)):
    request = {"command": command}
    if arguments is not None:
        request["arguments"] = arguments
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(SOCKET)
        connection.sendall(json.dumps(request).encode())
        text = b""
        while True:
            piece = connection.recv(65536)
            text += piece
            try:
                answer = json.loads(text)
                break
            except ValueError:
                if not piece:
                    raise
    if isinstance(answer, list):
        answer = answer[0]
    if answer.get("result") not in accepted:
        sys.exit("kea: %s: %s" % (command, answer.get("text", "no reason")))
    return answer


def subnets(server):
    yield from server.get("subnet4", [])
    for network in server.get("shared-networks", []):
        yield from network.get("subnet4", [])


def place_of(entry, where):
    context = entry.get("user-context")
    own = context.get("provision") if isinstance(context, dict) else None
    return "kea:%s" % own if isinstance(own, str) else where


def row(*fields):
    print("\t".join(str(field).replace("\t", " ").replace("\n", " ") for field in fields))


def reservations(server, commands):
    yield from (("kea", entry) for entry in server.get("reservations", []))
    databases = server.get("hosts-database") or server.get("hosts-databases")
    if databases and "reservation-get-all" not in commands:
        sys.exit("kea: reservations are in a database, and the hook libdhcp_host_cmds is not loaded")
    for subnet in subnets(server):
        where = "kea subnet %s" % subnet["subnet"]
        entries = subnet.get("reservations", [])
        if databases:
            answer = ask("reservation-get-all", {"subnet-id": subnet["id"]})
            entries = answer.get("arguments", {}).get("hosts", [])
        yield from ((where, entry) for entry in entries)


def leases(server, commands):
    if "lease4-get-all" in commands:
        for lease in ask("lease4-get-all").get("arguments", {}).get("leases", []):
            if lease.get("state", 0) == 0:
                end = lease.get("cltt", 0) + lease.get("valid-lft", 0)
                end = 0 if lease.get("valid-lft") == 0xFFFFFFFF else end
                yield lease.get("hw-address", ""), lease["ip-address"], lease.get("hostname", ""), end
        return
    database = server.get("lease-database", {})
    if database.get("type", "memfile") != "memfile":
        sys.exit("kea: leases are in a database, and the hook libdhcp_lease_cmds is not loaded")
    # Since Kea 3.0 the name may be without its folder.
    name = os.path.join("/var/lib/kea", database.get("name") or "kea-leases4.csv")
    held = {}
    # the cleanup moves the older part aside (LFC): first the oldest
    paths = [part for part in (name + ".completed", name + ".2", name + ".1", name) if os.path.exists(part)]
    if not paths or database.get("persist") is False:
        sys.exit("kea: leases are not kept in %s, and the hook libdhcp_lease_cmds is not loaded" % name)
    for path in paths:
        with open(path, newline="") as file:
            for lease in csv.DictReader(file):
                held[lease["address"]] = lease
    for address, lease in held.items():
        if lease.get("state", "0") == "0":
            end = 0 if lease["valid_lifetime"] == "4294967295" else lease["expire"]
            yield lease["hwaddr"], address, lease.get("hostname", ""), end


def configuration():
    arguments = ask("config-get")["arguments"]
    arguments.pop("hash", None)  # since 2.4; config-set refuses it
    return arguments


def state():
    commands = ask("list-commands")["arguments"]
    server = configuration()["Dhcp4"]
    for where, entry in reservations(server, commands):
        identifier = "" if "hw-address" in entry else next(
            (entry[key] for key in ("client-id", "duid", "circuit-id", "flex-id") if key in entry), "")
        row("r", entry.get("hw-address", ""), entry.get("ip-address", ""), entry.get("hostname", ""),
            place_of(entry, where), identifier)
    for lease in leases(server, commands):
        row("l", *lease)
    row("end")


def edit():
    own, mac, address, name = (os.environ["PROVISION_" + key] for key in ("OWN", "MAC", "ADDRESS", "NAME"))
    commands = ask("list-commands")["arguments"]
    whole = configuration()
    server = whole["Dhcp4"]
    entry = {"hw-address": mac, "ip-address": address, "hostname": name, "user-context": {"provision": own}}
    target = None
    if mac:
        for subnet in subnets(server):
            if ipaddress.ip_address(address) in ipaddress.ip_network(subnet["subnet"]):
                target = subnet
        if target is None:
            sys.exit("kea: no subnet4 contains %s" % address)
    is_ours = lambda entry: place_of(entry, "") == "kea:" + own
    if "reservation-add" in commands:
        databases = server.get("hosts-database") or server.get("hosts-databases")
        aim = {} if databases else {"operation-target": "primary"}
        for subnet in subnets(server):
            entries = subnet.get("reservations", [])
            if databases:
                answer = ask("reservation-get-all", {"subnet-id": subnet["id"]})
                entries = answer.get("arguments", {}).get("hosts", [])
            for old in filter(is_ours, entries):
                key = {"subnet-id": subnet["id"], "ip-address": old["ip-address"]}
                ask("reservation-del", dict(aim, **key))
        if target:
            ask("reservation-add", dict(aim, reservation=dict(entry, **{"subnet-id": target["id"]})))
        if not databases:
            ask("config-write")
        return
    for subnet in subnets(server):
        if any(map(is_ours, subnet.get("reservations", []))):
            subnet["reservations"] = [old for old in subnet["reservations"] if not is_ours(old)]
    if target:
        target.setdefault("reservations", []).append(entry)
    ask("config-test", whole)
    ask("config-set", whole)
    ask("config-write")


try:
    {"state": state, "edit": edit}[os.environ["PROVISION_TASK"]]()
except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit("kea: %s: %s" % (SOCKET, error))
"""
