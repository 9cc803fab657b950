"""The namespace in which checks run their pods: made for one verification, and gone after it."""

from __future__ import annotations

import calendar
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import pytest

from provision.contracts.check import NotRun, Trials
from provision.kube.names import API, MANAGED_BY, MANAGER

NAMESPACE = "provision-verify"
"""Begins the names of our namespaces; the id of the run ends them."""
PURPOSE = "provision/purpose"
"""Label by which later runs find what a killed one has left."""
RUN = "provision/run"
TRIAL = "provision/trial"
PROCESS = "provision/process"
"""Annotation of a namespace: machine and process that made it."""
LONGEST = 3600
"""Seconds that a trial may take at most."""
PAUSE = 1.0
GOING = 90.0
"""Seconds that pods have to go."""
STALE = 2 * LONGEST
"""Seconds after which a namespace of another machine is a leftover."""
LOG_BYTES = 262_144
LAST_LINES = 1000
OK, CREATED, FORBIDDEN, NOT_FOUND, CONFLICT = 200, 201, 403, 404, 409
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True, slots=True)
class TrialSpace:
    """A namespace of our own, with the priorities of its pods."""

    trials: Trials
    name: str

    @classmethod
    def of(cls, trials: Trials) -> TrialSpace:
        """Return that of a verification."""
        return cls(trials, f"{NAMESPACE}-{trials.run}".lower())

    @property
    def jobs(self) -> str:
        """Path of its Jobs."""
        return f"/apis/batch/v1/namespaces/{self.name}/jobs"

    @property
    def labels(self) -> dict[str, str]:
        """By which all that is made is found."""
        return {MANAGED_BY: MANAGER, PURPOSE: "verify", RUN: self.trials.run.lower()}

    def open(self) -> None:
        """Make it and the priority of its pods, unless this run has; remove what killed runs have left."""
        status = self.trials.send(API, "GET", f"/api/v1/namespaces/{self.name}").status
        if status == OK:
            return
        self.sweep()
        self.trials.at_end("Pods of checks are gone", self.close)
        security = {"pod-security.kubernetes.io/enforce": "privileged"}
        space = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.name,
                "labels": {**self.labels, **security},
                "annotations": {PROCESS: f"{socket.gethostname()}/{os.getpid()}"},
            },
        }
        self._add_priority(self.name, -1000)
        self.create("/api/v1/namespaces", space)

    def urgent_priority(self) -> str:
        """Return the name of a priority above that of our other pods, and below that of all others."""
        name = f"{self.name}-urgent"
        self._add_priority(name, -999)
        return name

    def _add_priority(self, name: str, value: int) -> None:
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": self.labels},
            "value": value,
            "preemptionPolicy": "Never",
            "description": "Pods of provision verify: they never take the place of others.",
        }
        self.create(_CLASSES, priority)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Send an object; the check is not run where that is not allowed."""
        reply = self.trials.send(API, "POST", path, body)
        if reply.status == FORBIDDEN:
            raise NotRun(f"not allowed: {reply.text}")
        if reply.status not in {OK, CREATED, CONFLICT}:
            raise AssertionError(f"POST {path}: {reply.status} {reply.text}")

    def pods(self, trial: str) -> list[dict[str, Any]]:
        """Return the pods of a trial."""
        return self.items(f"/api/v1/namespaces/{self.name}/pods", {"labelSelector": f"{TRIAL}={trial}"})

    def items(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the objects of a list."""
        return items_of(self.trials, f"{path}?{urlencode(query)}" if query else path)

    def log(self, pod: str) -> str:
        """Return what a pod has printed: of a long log the beginning and the last lines, where results are.

        The check is unknown without it: the API asks the node's kubelet, which may not answer.
        """
        path = f"/api/v1/namespaces/{self.name}/pods/{quote(pod)}/log"
        head = self._text(f"{path}?limitBytes={LOG_BYTES}")
        if len(head.encode()) < LOG_BYTES:
            return head
        return joined(head, self._text(f"{path}?tailLines={LAST_LINES}&limitBytes={LOG_BYTES}"))

    def _text(self, path: str) -> str:
        reply = self.trials.send(API, "GET", path)
        if reply.status != OK:
            _unknown(f"GET {path}: {reply.status} {reply.text}")
        return reply.text

    def empty(self, trial: str) -> None:
        """Remove the pods of a trial, and see that they are gone: what they held is free again."""
        for job in self.items(self.jobs, {"labelSelector": f"{TRIAL}={trial}"}):
            options = "propagationPolicy=Background&gracePeriodSeconds=1"
            self.trials.send(API, "DELETE", f"{self.jobs}/{job['metadata']['name']}?{options}")
        self._wait_until(lambda: not self.pods(trial), lambda: f"pods of {self.name}")

    def close(self) -> None:
        """Remove all of it, and see that it is gone."""
        for held in self.items(
            _CLASSES, {"labelSelector": f"{MANAGED_BY}={MANAGER},{RUN}={self.labels[RUN]}"}
        ):
            self.trials.send(API, "DELETE", f"{_CLASSES}/{held['metadata']['name']}")
        path = f"/api/v1/namespaces/{self.name}"
        self.trials.send(API, "DELETE", path)
        self._wait_until(lambda: self.trials.send(API, "GET", path).status == NOT_FOUND, self._held)

    def sweep(self) -> None:
        """Remove namespaces and priorities of runs that are no more."""
        selector = {"labelSelector": f"{MANAGED_BY}={MANAGER},{PURPOSE}=verify"}
        spaces = {space["metadata"]["name"]: space for space in self.items("/api/v1/namespaces", selector)}
        left = {name for name, space in spaces.items() if _is_left(space["metadata"])} - {self.name}
        for name in sorted(left):
            self.trials.send(API, "DELETE", f"/api/v1/namespaces/{name}")
        for held in self.items(_CLASSES, selector):
            name = held["metadata"]["name"]
            # A run makes the priority first: a young one without a namespace is that of a run that begins.
            space = name.removesuffix("-urgent")
            if space in left or (space not in spaces and _age(held["metadata"]) > GOING):
                self.trials.send(API, "DELETE", f"{_CLASSES}/{name}")

    def _held(self) -> str:
        """Return the namespace with what Kubernetes says of why it does not go, as a dead APIService."""
        reply = self.trials.send(API, "GET", f"/api/v1/namespaces/{self.name}")
        texts: list[str] = []
        with suppress(ValueError, AttributeError, TypeError):
            rows = json.loads(reply.text).get("status", {}).get("conditions", [])
            texts = [str(row.get("message", "")) for row in rows if row.get("status") == "True"]
        return f"namespace {self.name}{': ' if texts else ''}{'; '.join(texts)}"

    def _wait_until(self, is_gone: Callable[[], bool], what: Callable[[], str]) -> None:
        waited = 0.0
        while not is_gone():
            if waited >= GOING:
                raise AssertionError(f"{what()}: not gone after {GOING:g} s")
            self.trials.pause(PAUSE, final=True)
            waited += PAUSE


def joined(head: str, tail: str) -> str:
    """Return the beginning of a log, and its last lines: what is in both is there once."""
    place = 0
    while place < len(head):
        if tail.startswith(head[place:]):
            return head[:place] + tail
        place = head.find("\n", place) + 1 or len(head)
    return head[: head.rfind("\n") + 1] + tail


def items_of(trials: Trials, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list; the check is unknown without one."""
    reply = trials.send(API, "GET", path)
    if reply.status != OK:
        _unknown(f"GET {path}: {reply.status} {reply.text}")
    try:
        items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    except (ValueError, KeyError, TypeError):
        _unknown(f"GET {path}: the answer is not a list")
    return items


def _is_left(metadata: Mapping[str, Any]) -> bool:
    """Whether the run that made a namespace is no more: its process is dead, or it is too old for any run."""
    machine, _, process = str(metadata.get("annotations", {}).get(PROCESS, "")).rpartition("/")
    if machine == socket.gethostname() and re.fullmatch("[1-9][0-9]{0,8}", process):
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False
    return _age(metadata) > STALE


def _age(metadata: Mapping[str, Any]) -> float:
    """Return the seconds since an object was made; 0 where that cannot be read."""
    with suppress(ValueError, OverflowError):
        text = str(metadata.get("creationTimestamp", ""))
        return time.time() - _seconds(text)
    return 0.0


def _seconds(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _unknown(reason: str) -> NoReturn:
    pytest.skip(f"unknown: {reason}")
