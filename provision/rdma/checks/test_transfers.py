"""RDMA between pods: ports, connections, bandwidth from host and GPU memory, and which way data went.

A figure counts only where counters show that the declared port carried it: TCP, another port and NVLink carry
data as well, and no program says so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provision.contracts.check import Figure, NotDeclared, Site, Trials
from provision.contracts.query import Unknown
from provision.kube.checks.pods import PodGroup, run_pods
from provision.rdma.checks.pods import (
    MOST_NODES,
    Net,
    Place,
    between,
    leave_cards,
    look,
    nets_of,
    pairs_of,
    require_declared,
    serving,
    transferred,
    unknown,
)
from provision.rdma.measurements.perftest import parse_bandwidth
from provision.rdma.measurements.pod_scripts import PodPort, counted
from provision.rdma.measurements.rping import parse_rping
from provision.rdma.measurements.ucx import fault, parse_protocols

PINGS = 10
SECONDS = 240
"""For each of the two pods of a pair, with the download of the image."""
DURATION = 10
UCX_BYTES, UCX_TIMES = 128 * 2**20, 100
NIXL = "python3 -c \"from nixl._api import nixl_agent; nixl_agent('provision')\""
NIXL_FAULTS = (
    "NIXL_ERR_BACKEND",
    "Address not valid",
    "No such device",
    "no RDMA transports",
    "falling back to TCP",
    "tcp/",
)
"""What a log has whose agent has no port; `tcp/` begins a transport of UCX."""


@pytest.fixture
def nets(site: Site, cluster: str) -> list[Net]:
    """The declared networks of pods."""
    del cluster
    return nets_of(site)


def test_rdma_pods_have_a_port(site: Site, nets: list[Net], trials: Trials) -> None:
    """A pod on each node has an address of the pool with a RoCE v2 entry, one port, and may lock memory."""
    for net in nets:
        for node, own in look(site, trials, net).items():
            who = f"{net.name} on {node}"
            rail = next(place.rail for place in net.places if place.name == node)
            assert net.subnet is None or own.address in net.subnet, (
                f"{who}: {own.address} is not of the pool {net.subnet}"
            )
            assert own.hca, f"{who}: no port has a RoCE v2 entry of {own.address}"
            assert rail.hca in (None, own.hca), f"{who}: {own.address} is on {own.hca}, not on {rail.hca}"
            others = own.devices - {own.hca}
            assert not others, f"{who}: it also has the device files of {', '.join(sorted(others))}"
            assert own.hca in own.devices, f"{who}: it has no device file of {own.hca}"
            assert own.memlock == "unlimited", f"{who}: it may lock {own.memlock} KiB of memory"


def test_rping_between_nodes(site: Site, nets: list[Net], trials: Trials) -> None:
    """RDMA connections between pods of different nodes carry data there and back."""
    for net in nets:
        for number, (client, server) in enumerate(pairs_of(net)):
            _ping(site, net, trials, f"rping-{number}", client, server)


def test_rping_within_a_node(site: Site, nets: list[Net], trials: Trials) -> None:
    """RDMA connections between two pods of one node carry data there and back."""
    for net in nets:
        for number, place in enumerate(net.places[:2]):
            _ping(site, net, trials, f"rping-in-{number}", place, place)


def _ping(site: Site, net: Net, trials: Trials, trial: str, client: Place, server: Place) -> None:
    def talk(own: PodPort) -> PodGroup:
        command = f"timeout 90 rping -c -I $own -a {own.address} -C {PINGS} -v -V"
        return net.group(site, client, "client", counted(command))

    serve = net.group(site, server, "server", serving("exec rping -s -a $own -P -v"))
    end = between(site, trials, trial, serve, talk, seconds=SECONDS)
    result = parse_rping(transferred(site, client, end).text)
    who = f"{net.name}: {client.name} to {server.name}"
    if isinstance(result, Unknown):
        unknown(f"{who}: {result.reason}")
    assert result.iterations == PINGS, f"{who}: {result.iterations} of {PINGS} pings: {result.complaint}"


def test_rdma_bandwidth(
    site: Site, nets: list[Net], trials: Trials, measured: Callable[[Figure], None]
) -> None:
    """Writes from host memory reach the declared share of the port's rate, over the declared port alone."""
    expected = site.inventory.expect.rdma
    if expected is None or expected.write is None:
        raise NotDeclared("no bandwidth from host memory is expected")
    for net in nets:
        for number, pair in enumerate(pairs_of(net)):
            _write(site, net, trials, f"write-{number}", pair, expected.write, measured)


def test_rdma_bandwidth_of_gpus(
    site: Site, nets: list[Net], trials: Trials, measured: Callable[[Figure], None]
) -> None:
    """Writes from GPU memory reach the declared share of the port's rate, over the declared port alone."""
    expected = site.inventory.expect.rdma
    if expected is None or expected.write_gpu is None:
        raise NotDeclared("no bandwidth from GPU memory is expected")
    for net in nets:
        for number, pair in enumerate(pairs_of(net, cards=True)):
            leave_cards(trials, pair)
            _write(site, net, trials, f"write-gpu-{number}", pair, expected.write_gpu, measured, cards=1)


def _write(
    site: Site,
    net: Net,
    trials: Trials,
    trial: str,
    pair: tuple[Place, Place],
    share: float,
    measured: Callable[[Figure], None],
    *,
    cards: int = 0,
) -> None:
    sender, receiver = pair
    # --use_cuda_dmabuf is refused in front of --use_cuda, and nvidia_peermem needs none of it.
    memory = " --use_cuda=0" if cards else ""
    command = f"ib_write_bw -d $hca -i $port -x $gid -F --report_gbits -D {DURATION} -s 65536 -q 4{memory}"
    serve = net.group(site, receiver, "server", serving(command), cards=cards)

    def talk(own: PodPort) -> PodGroup:
        return net.group(site, sender, "client", counted(f"timeout 90 {command} {own.address}"), cards=cards)

    end = between(site, trials, trial, serve, talk, seconds=SECONDS)
    moved = transferred(site, sender, end)
    result = parse_bandwidth(moved.text)
    who = f"{net.name}: {sender.name} to {receiver.name}"
    if isinstance(result, Unknown):
        unknown(f"{who}: {result.reason}")
    assert bool(result.card) == bool(cards), f"{who}: the data was not in {'GPU' if cards else 'host'} memory"
    assert (result.device, result.gid_index) == (moved.own.hca, moved.own.index), (
        f"{who}: it used {result.device} with entry {result.gid_index}, not {moved.own.hca} {moved.own.index}"
    )
    require_declared(moved.judge(result.sent), who)
    rate = moved.rate
    if rate is None:
        unknown(f"{who}: {moved.own.hca} does not say its rate")
    measured(Figure(f"{who}", result.best.gbits, "Gbit/s", rate, 1 - share))
    assert result.best.gbits >= share * rate, (
        f"{who}: {result.best.gbits:.1f} Gbit/s are less than {share:.0%} of {rate:g}"
    )


def test_ucx_uses_the_rail(site: Site, nets: list[Net], trials: Trials) -> None:
    """UCX sends between nodes over the declared port alone: no TCP, no NVLink, no other port."""
    for net in nets:
        for number, (sender, receiver) in enumerate(pairs_of(net)):
            both = sender.has_cards and receiver.has_cards
            if both:
                leave_cards(trials, (sender, receiver))
            # Without cuda_ipc: between processes of one node it takes NVLink, which proves nothing.
            transports = "rc_x,rc" + (",cuda_copy" if both else "")
            settings = f"UCX_TLS={transports} UCX_NET_DEVICES=$hca:$port UCX_IB_ADDR_TYPE=eth"
            test = (
                f"ucx_perftest -t tag_bw -m {'cuda' if both else 'host'} -s {UCX_BYTES} -n {UCX_TIMES} -w 1"
            )
            run = f"{settings} UCX_PROTO_INFO=y UCX_LOG_LEVEL=info timeout 120 {test}"
            serve = net.group(
                site, receiver, "server", serving(f"{settings} {test}"), purpose="nixl", cards=int(both)
            )

            def talk(
                own: PodPort, sender: Place = sender, run: str = run, cards: int = int(both), net: Net = net
            ) -> PodGroup:
                script = counted(f"{run} {own.address}")
                return net.group(site, sender, "client", script, purpose="nixl", cards=cards)

            end = between(site, trials, f"ucx-{number}", serve, talk, seconds=SECONDS)
            moved = transferred(site, sender, end)
            protocols = parse_protocols(moved.text)
            who = f"{net.name}: {sender.name} to {receiver.name}"
            if isinstance(protocols, Unknown):
                unknown(f"{who}: {protocols.reason}")
            wrong = fault(protocols, *moved.port)
            assert not wrong, f"{who}: {wrong}"
            require_declared(moved.judge(UCX_BYTES * UCX_TIMES), who)


def test_nixl_starts_on_the_rail(site: Site, nets: list[Net], trials: Trials) -> None:
    """A NIXL agent starts on each node with UCX on the declared port; that is no proof of a transfer."""
    for net in nets:
        settings = "UCX_TLS=rc_x,rc,cuda_copy UCX_NET_DEVICES=$hca:$port UCX_IB_ADDR_TYPE=eth"
        script = counted(f"{settings} NIXL_LOG_LEVEL=INFO UCX_LOG_LEVEL=info {NIXL}")
        places = net.places[:MOST_NODES]
        leave_cards(trials, [place for place in places if place.has_cards])
        groups = [
            net.group(site, place, f"n{number}", script, purpose="nixl", cards=int(place.has_cards))
            for number, place in enumerate(places)
        ]
        ends = {
            end.group: end for end in run_pods(site, trials, f"nixl-{net.name}"[:30], groups, seconds=SECONDS)
        }
        for number, place in enumerate(places):
            text = transferred(site, place, ends[f"n{number}"]).text
            faults = [line.strip() for line in text.splitlines() if any(word in line for word in NIXL_FAULTS)]
            assert not faults, f"{net.name} on {place.name}: {faults[0][:160]}"
            assert "Backend UCX was instantiated" in text, f"{net.name} on {place.name}: no backend UCX"
