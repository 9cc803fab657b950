"""How pods share cards: the declared mode is at work, and nothing else offers the same cards."""

from __future__ import annotations

import json
from itertools import product
from math import ceil
from typing import Any

import pytest

from provision.contracts.check import NotDeclared, Site
from provision.kube.names import API
from provision.sharing.checks.card_pods import mode_of

OK = 200
APPS = "/apis/apps/v1"
_KAI = (
    "kai-scheduler",
    (
        "kai-operator",
        "kai-scheduler-default",
        "binder",
        "admission",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
    ),
)
CONTROLLERS = {"hami": ("hami-system", ("hami-scheduler",)), "kai": _KAI, "kai_fractions": _KAI}
FRACTIONS = "/apis/gpu-fractioning.kai.scheduler/v1alpha1/gpufractioningconfigs"


def get(site: Site, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list that must be there."""
    reply = site.get(API, path)
    assert reply.status == OK, f"{path}: {reply.status} {reply.text}"
    items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    return items


@pytest.fixture
def mode(site: Site, cluster: str) -> str:
    """The declared mode."""
    del cluster
    return mode_of(site)


def test_sharing_controllers_run(site: Site, mode: str) -> None:
    """What schedules pods onto shared cards is available: HAMi's scheduler, or KAI with its fractions."""
    if mode not in CONTROLLERS:
        raise NotDeclared("the mode has no controller of its own")
    namespace, names = CONTROLLERS[mode]
    there = {
        item["metadata"]["name"]: item for item in get(site, f"{APPS}/namespaces/{namespace}/deployments")
    }
    for name in names:
        assert name in there, f"{name} is not there"
        wanted = there[name].get("spec", {}).get("replicas", 1)
        ready = there[name].get("status", {}).get("availableReplicas", 0)
        assert ready >= wanted, f"{name}: {ready} of {wanted} pods are available"
    for item in get(site, FRACTIONS) if mode == "kai_fractions" else ():
        rows = item.get("status", {}).get("conditions", [])
        states = {row["type"]: row["status"] for row in rows}
        for kind in ("FractiondReady", "MpsdReady", "Ready"):
            assert states.get(kind) == "True", (
                f"GpuFractioningConfig: {kind} is {states.get(kind, 'not set')}"
            )


def test_sharing_queues(site: Site, mode: str) -> None:
    """Every declared queue is there, below its parent, with its GPUs, CPUs and memory."""
    queues = site.inventory.sharing.queues if site.inventory.sharing is not None else {}
    if mode not in ("kai", "kai_fractions") or not queues:
        raise NotDeclared("no queue is declared")
    there = {
        item["metadata"]["name"]: item["spec"] for item in get(site, "/apis/scheduling.run.ai/v2/queues")
    }
    for name, queue in queues.items():
        assert name in there, f"queue {name} is not there"
        spec = there[name]
        parent = spec.get("parentQueue") or None
        assert parent == queue.parent, f"queue {name} is below {parent}, {queue.parent} is declared"
        for kind, key in product(("gpu", "cpu", "memory"), ("quota", "limit")):
            share = getattr(queue, kind)
            declared = getattr(share, key) if share is not None else None
            wanted = -1 if declared is None else declared
            if wanted > 0 and kind == "cpu":
                wanted *= 1000  # KAI counts thousandths of a core
            if wanted > 0 and kind == "memory":
                wanted = ceil(wanted * 1.048576)  # and millions of bytes
            shown = spec.get("resources", {}).get(kind, {}).get(key)
            assert shown == wanted, f"queue {name}: {kind}.{key} is {shown}, {wanted} is declared"


def test_one_plugin_offers_the_cards(site: Site, mode: str) -> None:
    """One device plugin offers the cards: with two, a pod gets a card that another one has."""
    gpu = site.inventory.gpu
    operator = (
        (gpu.operator.namespace or "gpu-operator") if gpu is not None and gpu.operator is not None else ""
    )
    for item in get(site, f"{APPS}/daemonsets"):
        metadata = item["metadata"]
        name, namespace, labels = metadata["name"], metadata["namespace"], metadata.get("labels", {})
        is_hami = labels.get("app.kubernetes.io/component") == "hami-device-plugin"
        is_stock = name.startswith("nvidia-device-plugin") and (namespace != operator or mode == "hami")
        assert not is_stock, f"{namespace}/{name} offers cards, too"
        assert not is_hami or (mode, namespace) == ("hami", "hami-system"), (
            f"{namespace}/{name} offers cards, too"
        )
