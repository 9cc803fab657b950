"""Asks a hypervisor's API and acts on it: with few requests, and every task is waited for."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from provision.connections.contracts import ApiConnection, ApiError
from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox import answers, failures, mapping_writes, tasks, vm_effects
from provision.proxmox import marker as markers
from provision.proxmox.marker import START, TAG
from provision.proxmox.queries import (
    Creation,
    Mappings,
    NodeBridges,
    NodeStorages,
    Permissions,
    Rights,
    StorageContent,
    Strays,
    UsbMappings,
    VmConfig,
    VmEntry,
    VmList,
    VmState,
)
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient, UnknownOutcome

FIRST_POLL = 0.2
LAST_POLL = 2.0
LOCK_PATIENCE = 120.0
"""Seconds to retry while another task holds a lock."""
SHUTDOWN = 120
"""Seconds that a guest has to shut down before its plug is pulled."""
MAPPING_TRIES = 8
"""How often a mapping is written again that another node of the cluster has changed meanwhile."""
LOG_LINES = 8
CHANGED = "CONFIG_CHANGED_MEANWHILE"
_MAPPINGS = {Mappings(): "/cluster/mapping/pci", UsbMappings(): "/cluster/mapping/usb"}
_VM_CONFIG = re.compile(r"/nodes/[^/]+/qemu/(\d+)/config")
OK = 200


@dataclass(frozen=True, slots=True)
class _Failure(Exception):  # noqa: N818 - carries a result through the requests of one action
    result: Result


class ProxmoxDriver:
    """One hypervisor's API; a Driver.

    Args:
        system: `pve/api`.
        connection: an open ApiConnection.
        node: the hypervisor's node name in Proxmox VE.
        clock: seconds that only grow.
        vmids: numbers of the inventory's VMs by node; a VM whose number is not given is found by its name.
        login: our token, as Proxmox VE writes it into the identifiers of our tasks.
        root: connection of root@pam, for the requests that name this login; it opens itself when it is used.
    """

    def __init__(
        self,
        system: str,
        connection: ApiConnection,
        node: str,
        clock: Callable[[], float] = time.monotonic,
        vmids: Mapping[str, int] | None = None,
        login: str = "",
        root: ApiConnection | None = None,
    ) -> None:
        self._root = root
        self._vmids = vmids or {}
        self._login = login
        self.system = system
        self._connection = connection
        self._node = node
        self._clock = clock
        self._owing: set[int] = set()
        self._states: dict[int, VmState] = {}
        self._replies: dict[ApiGet, ApiReply] = {}

    @property
    def round_trips(self) -> int:
        """Requests so far."""
        return self._connection.requests

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
        if self._root is not None:
            self._root.close()

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:  # noqa: ARG002 - the protocol's form
        """Refuse: an API has no boot; hosts are rebooted by their own system."""
        raise Permanent(Diagnostic(code="NO_BOOT", summary=f"{self.system} is an API and cannot be rebooted"))

    # ------------------------------------------------------------ queries

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything: at most one request a kind, one for each VM that is there, one a further ApiGet.

        Raises:
            Transient, Permanent, Refused: the API gives no answers at all.
        """
        answered: dict[Any, object] = {}
        self._replies = {}
        vmids = sorted(query.vmid for query in queries if isinstance(query, VmConfig))
        if vmids or Permissions() in queries:
            answered[Permissions()] = self._ask("/access/permissions", answers.rights)
        strays = [query for query in queries if isinstance(query, Strays)]
        if vmids or strays or VmList() in queries:
            answered[VmList()] = self._vm_list()
        for query in queries & _MAPPINGS.keys():
            data = {"check-node": self._node}
            answered[query] = self._ask_plain(_MAPPINGS[query], answers.mappings, data)
        for storage in sorted(query.storage for query in queries if isinstance(query, StorageContent)):
            path = f"/nodes/{self._node}/storage/{storage}/content"
            answered[StorageContent(storage)] = self._ask_plain(path, answers.volumes)
        if NodeStorages() in queries:
            path = f"/nodes/{self._node}/storage"
            answered[NodeStorages()] = self._ask_plain(path, answers.storages)
        if NodeBridges() in queries:
            path, data = f"/nodes/{self._node}/network", {"type": "any_bridge"}
            answered[NodeBridges()] = self._ask_plain(path, answers.bridges, data)
        if vmids:
            states = self._vms(vmids, answered[VmList()], answered[Permissions()], cancel)
            answered |= {VmConfig(vmid): state for vmid, state in states.items()}
        answered |= {query: self._strays(query, answered) for query in strays}
        for query in queries:
            if isinstance(query, ApiGet) and query not in self._replies:
                path, _, parameters = query.path.partition("?")
                self._ask_plain(path, lambda body: body, dict(parse_qsl(parameters)))
        # Checks read the same replies with their own code; they cost no further request. Long lists that
        # nobody asked for are not kept.
        kept = {
            query: reply for query, reply in self._replies.items() if query in queries or _is_small(query)
        }
        return Snapshot(self.system, answers={**answered, **kept})

    def _ask(
        self, path: str, read: Callable[[object], object], data: Mapping[str, object] | None = None
    ) -> object:
        try:
            return _understood(read, self._connection.request("GET", path, data))
        except ApiError as error:
            return Unknown(str(error))

    def _ask_plain(
        self, path: str, read: Callable[[object], object], data: Mapping[str, object] | None = None
    ) -> object:
        """Ask, and keep the reply as it came, for checks."""
        query = ApiGet(f"{path}?{urlencode(data)}" if data else path)
        try:
            body = self._connection.request("GET", path, data)
        except ApiError as error:
            self._replies[query] = ApiReply(error.status, str(error))
            return Unknown(str(error))
        public = answers.without_passwords(body)
        self._replies[query] = ApiReply(OK, json.dumps(public, separators=(",", ":")))
        return _understood(read, body)

    def _vm_list(self) -> object:
        """Ask the node itself: `/cluster/resources` is a cache that pvestatd fills every 10 s."""
        path = f"/nodes/{self._node}/qemu"
        return self._ask_plain(path, lambda body: answers.vm_list(body, self._node))

    def _elsewhere(self) -> object:
        """Ask for what has a number in the rest of the cluster; only a VM that is not here costs this."""
        return self._ask("/cluster/resources", answers.cluster_list, {"type": "vm"})

    def _vms(
        self, vmids: Sequence[int], entries: object, rights: object, cancel: Cancel
    ) -> dict[int, object]:
        if not isinstance(entries, tuple):
            return dict.fromkeys(vmids, entries)
        here = {entry.vmid: entry for entry in entries}
        absent = [vmid for vmid in vmids if vmid not in here]
        others = self._elsewhere() if absent else ()
        answered: dict[int, object] = {vmid: self._absent(vmid, others, rights) for vmid in absent}
        for vmid in vmids:
            if cancel.leaving:
                raise Interrupted
            if vmid in here:
                answered[vmid] = self._vm(here[vmid])
        return answered

    def _strays(self, query: Strays, answered: Mapping[Any, object]) -> object:
        entries = answered[VmList()]
        if not isinstance(entries, tuple):
            return entries
        tagged = [entry for entry in entries if TAG in entry.tags and entry.vmid in query.vmids]
        states = (answered.get(VmConfig(entry.vmid)) or self._state(entry) for entry in tagged)
        return tuple(state for state in states if isinstance(state, VmState))

    def _absent(self, vmid: int, others: object, rights: object) -> object:
        """Return what has a number that no VM of this node has: nothing, or something elsewhere."""
        if not isinstance(others, tuple):
            return others
        entry = next((candidate for candidate in others if candidate.vmid == vmid), None)
        # The cache still lists a VM of this node that was removed a moment ago.
        if entry is not None and (entry.kind, entry.node) != ("qemu", self._node):
            return answers.elsewhere(entry, self._moved(entry))
        if isinstance(rights, Rights) and rights.may(f"/vms/{vmid}", "VM.Audit"):
            return None
        # a token without the right gets an empty list, and no error
        return Unknown(f"the token lacks VM.Audit on /vms/{vmid}")

    def _moved(self, entry: VmEntry) -> object:
        """Ask another node of the cluster for a VM with our tag: somebody may have migrated a VM of ours."""
        if entry.kind != "qemu" or TAG not in entry.tags:
            return None
        path = f"/nodes/{entry.node}/qemu/{entry.vmid}/pending"
        return self._ask(path, lambda body: answers.vm_state(entry, body))

    def _vm(self, entry: VmEntry) -> object:
        state = self._state(entry)
        owes = isinstance(state, VmState) and state.marker is not None and state.marker.owes == START
        (self._owing.add if owes else self._owing.discard)(entry.vmid)
        return state

    def _state(self, entry: VmEntry) -> object:
        path = f"/nodes/{self._node}/qemu/{entry.vmid}/pending"
        state = self._ask_plain(path, lambda body: answers.vm_state(entry, body))
        if isinstance(state, VmState):
            if state.is_unfinished:
                state = replace(state, creation=self._creation(entry.vmid))
            self._states[entry.vmid] = state
        return state

    def _creation(self, vmid: int) -> Creation | None:
        """Ask who began a VM of which only the lock is there; no other VM costs this."""
        path = f"/nodes/{self._node}/tasks"
        data = {"vmid": vmid, "source": "all"}
        answer = self._ask(path, lambda body: answers.creation(body, self._login), data)
        return answer if isinstance(answer, Creation) else None

    def _dated_again(self, request: Request) -> Request | None:
        """Return a refused write with the present digest, if what it writes is as it was when it was planned.

        Backups, locks and other people's keys change the digest of a VM's configuration, too.
        """
        match = _VM_CONFIG.fullmatch(request.path)
        before = self._states.get(int(match[1])) if match is not None else None
        if before is None or request.data.get("digest") != before.digest:
            return None
        after = self._state(VmEntry(before.vmid, self._node, "qemu", before.name, before.status))
        if not isinstance(after, VmState):
            return None
        keys = {*request.data, *str(request.data.get("delete", "")).split(",")} - {"digest", "delete", ""}
        same = all(_value_of(before, key) == _value_of(after, key) for key in keys)
        return replace(request, data={**request.data, "digest": after.digest}) if same else None

    # ------------------------------------------------------------ actions

    def act(
        self,
        run: str,  # noqa: ARG002 - the protocol's form; PVE's own task log names the token
        actions: Sequence[Action],
        effects: Sequence[Effect],
        emit: Emit,
        cancel: Cancel,
    ) -> list[Result]:
        """Send the requests in order and wait for their tasks, then do the effects; see Driver."""
        results: list[Result] = []
        written: set[str] = set()
        pending: list[Callable[[], None]] = [
            *(self._doing(action, written, emit, cancel) for action in actions),
            *(self._effecting(effect, emit, cancel) for effect in effects),
        ]
        for perform in pending:
            broken = results and results[-1].verdict is not Verdict.DONE
            if broken or cancel.draining:
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            began = self._clock()
            try:
                perform()
                result = Result(Verdict.DONE)
            except _Failure as failure:
                result = failure.result
            except UnknownOutcome as error:
                result = Result(Verdict.INDETERMINATE, diagnostic=error.diagnostics[0], handle=error.handle)
            except ProvisionError as error:
                result = Result(Verdict.FAILED, diagnostic=error.diagnostics[0])
            results.append(replace(result, seconds=self._clock() - began))
        return results

    @staticmethod
    def _dated(request: Request, written: set[str]) -> Request:
        """Return a request without its digest when we ourselves wrote to the same path since it was read."""
        if request.path not in written or "digest" not in request.data:
            return request
        return replace(request, data={key: value for key, value in request.data.items() if key != "digest"})

    def _doing(self, action: Action, written: set[str], emit: Emit, cancel: Cancel) -> Callable[[], None]:
        def do() -> None:
            if not isinstance(action.remedy, ApiCall):
                raise TypeError(f"{action.label}: an API takes no script")
            for request in action.remedy.requests:
                self._do(self._dated(request, written), action.label, emit, cancel)
                written.add(request.path)
                vmid = _started(request.path)
                if vmid in self._owing:
                    entry = VmEntry(vmid, self._node, "qemu", "", "running")
                    written.add(self._owe(entry, "", action.label, emit, cancel))

        return do

    def _effecting(self, effect: Effect, emit: Emit, cancel: Cancel) -> Callable[[], None]:
        def do() -> None:
            if effect.cls is not vm_effects.POWER_CYCLE:
                raise _Failure(self._failed(f"{self.system} cannot perform {effect}", "EFFECT_UNKNOWN"))
            self._power_cycle(effect.target, emit, cancel)

        return do

    def _power_cycle(self, name: str, emit: Emit, cancel: Cancel) -> None:
        entries = self._vm_list()
        number = self._vmids.get(name)  # somebody may have renamed the VM and given its name to another one
        own = [
            entry
            for entry in (entries if isinstance(entries, tuple) else ())
            if TAG in entry.tags
            if (entry.name == name if number is None else entry.vmid == number)
        ]
        if len(own) != 1:
            raise _Failure(self._failed(f"{len(own)} managed VMs are called {name}", "VM_NOT_FOUND"))
        vm = own[0]
        base = f"/nodes/{self._node}/qemu/{vm.vmid}"
        # A run that is killed after this leaves the VM off; the next run starts it, whatever its `power`.
        self._owe(vm, START, f"note that {name} must be started again", emit, cancel)
        data = {"timeout": SHUTDOWN, "forceStop": 1}
        shutdown = Request("POST", f"{base}/status/shutdown", data, task=SHUTDOWN + 60)
        self._do(shutdown, f"shut down {name}", emit, cancel)
        limit = tasks.start_timeout(vm.memory, passthrough=True)
        self._do(Request("POST", f"{base}/status/start", {}, task=limit + 60), f"start {name}", emit, cancel)
        self._owe(vm, "", f"note that {name} was started", emit, cancel)

    def _owe(self, entry: VmEntry, due: str, label: str, emit: Emit, cancel: Cancel) -> str:
        """Note in the marker line of a VM whether its start is due; return the path that was written."""
        path = f"/nodes/{self._node}/qemu/{entry.vmid}/config"
        state = self._state(entry)
        if not isinstance(state, VmState):
            reason = state.reason if isinstance(state, Unknown) else "its configuration cannot be read"
            raise _Failure(self._failed(f"{label}: {reason}", "UNKNOWN"))
        if state.marker is not None and state.marker.owes != due:
            description = markers.write(state.next_value("description"), replace(state.marker, owes=due))
            data = {"description": description, "digest": state.digest}
            self._do(Request("PUT", path, data), label, emit, cancel)
        (self._owing.add if due else self._owing.discard)(entry.vmid)
        return path

    def _do(self, request: Request, label: str, emit: Emit, cancel: Cancel) -> None:
        emit(label)
        until = self._clock() + LOCK_PATIENCE
        pause = 1.0
        while True:
            text = self._once(request, label, emit, cancel)
            if text is None:
                return
            if not tasks.is_locked(text) or self._clock() >= until:
                raise _Failure(self._failed(text, "VM_LOCKED" if tasks.is_locked(text) else "API_REFUSED"))
            emit(f"{label}: waiting: {text}")
            self._pause(pause, cancel)
            pause = min(pause * 2, 10.0)

    def _mapped_again(self, request: Request) -> Request | None:
        """Return a refused write of a mapping with what the other nodes of the cluster have written to it."""
        listed = self._ask(mapping_writes.path_of(request), answers.mappings)
        known = listed if isinstance(listed, tuple) else ()
        return mapping_writes.again(request, known, self._node)

    def _once(self, request: Request, label: str, emit: Emit, cancel: Cancel, tried: int = 0) -> str | None:
        """Send one request; return None when it did its work, or the text of a lock to wait for."""
        try:
            # Without root's login, Proxmox VE says what the token may not do.
            connection = self._root if request.login and self._root is not None else self._connection
            answer = connection.request(request.method, request.path, request.data)
        except ApiError as error:
            if tasks.is_there_already(request.path, str(error)):
                return None
            if tasks.is_locked(str(error)):
                return str(error)
            if _code(error) == CHANGED and (again := self._dated_again(request)) is not None:
                return self._once(again, label, emit, cancel)
            if tried < MAPPING_TRIES and mapping_writes.is_race(request, str(error)):
                merged = self._mapped_again(request)
                return None if merged is None else self._once(merged, label, emit, cancel, tried + 1)
            raise _Failure(self._failed(str(error), _code(error), evidence=_details(error))) from None
        upid = tasks.upid_of(answer)
        if upid is None or not request.task:
            return None
        return self._wait(upid, request, label, emit, cancel)

    def _wait(self, upid: tasks.Upid, request: Request, label: str, emit: Emit, cancel: Cancel) -> str | None:
        until = self._clock() + request.task
        pause = FIRST_POLL
        silent = 0.0
        while True:
            status = self._task_status(upid)
            if status is not None:
                return self._ended(upid, status, request)
            if self._clock() >= until:
                raise _Failure(self._unknown(f"{label}: the task still runs after {request.task:g} s", upid))
            try:
                cancel.wait(pause)
            except Interrupted:
                raise _Failure(
                    self._unknown(f"{label}: the run was interrupted while the task ran", upid)
                ) from None
            silent += pause
            pause = min(pause * 1.5, LAST_POLL)
            if silent >= 4 * LAST_POLL:
                silent = 0.0
                for line in self._log(upid)[-1:]:
                    emit(line)

    def _task_status(self, upid: tasks.Upid) -> str | None:
        """Return how a task ended, None while it runs; an API that is away for a moment is asked again."""
        try:
            body = self._connection.request("GET", f"{upid.path}/status")
        except Transient:
            return None
        except ProvisionError as error:  # the token was removed or the certificate changed: the task goes on
            raise _Failure(self._unknown(error.diagnostics[0].summary, upid)) from None
        except ApiError as error:
            return str(error) if tasks.is_lost(str(error)) else None
        if not isinstance(body, Mapping) or body.get("status") != "stopped":
            return None
        return str(body.get("exitstatus", "unexpected status"))

    def _ended(self, upid: tasks.Upid, status: str, request: Request) -> str | None:
        if tasks.is_success(status) or tasks.is_there_already(request.path, status):
            return None
        if tasks.is_lost(status):
            raise _Failure(self._unknown(f"Proxmox VE does not know how the task ended: {status}", upid))
        if tasks.is_locked(status):
            return status
        log = self._log(upid)
        raise _Failure(self._failed(status, "TASK_FAILED", evidence=log, handle=upid.text))

    def _log(self, upid: tasks.Upid) -> tuple[str, ...]:
        try:
            body = self._connection.request("GET", f"{upid.path}/log", {"limit": 500})
        except (ApiError, ProvisionError):
            return ()
        return answers.log_lines(body)[-LOG_LINES:]

    def _pause(self, seconds: float, cancel: Cancel) -> None:
        try:
            cancel.wait(seconds)
        except Interrupted:
            raise _Failure(Result(Verdict.NOT_BEGUN)) from None

    def _failed(self, text: str, code: str, evidence: tuple[str, ...] = (), handle: str = "") -> Result:
        known, remedy = ("", "") if code == CHANGED else failures.classify(text)
        diagnostic = Diagnostic(known or code, text.strip(), self._node, evidence=evidence, remedy=remedy)
        return Result(Verdict.FAILED, diagnostic=diagnostic, output=evidence, handle=handle)

    def _unknown(self, text: str, upid: tasks.Upid) -> Result:
        remedy = "Run the command again: it reads the present state first."
        diagnostic = Diagnostic("TASK_UNKNOWN", text, self._node, evidence=(upid.text,), remedy=remedy)
        return Result(Verdict.INDETERMINATE, diagnostic=diagnostic, handle=upid.text)


def _is_small(query: ApiGet) -> bool:
    """Whether a reply is worth keeping for checks: of one VM, or of the mappings."""
    return query.path.endswith("/pending") or query.path.startswith("/cluster/mapping/")


def _value_of(state: VmState, key: str) -> tuple[str | None, bool, str | None]:
    """Return a key's active value, and what waits for it."""
    return state.config.get(key), key in state.pending, state.pending.get(key)


def _started(path: str) -> int:
    """Return the number of the VM that a request starts, or 0."""
    match = re.fullmatch(r"/nodes/[^/]+/qemu/(\d+)/status/start", path)
    return int(match[1]) if match is not None else 0


def _code(error: ApiError) -> str:
    text = str(error)
    if "checksum mismatch (file change" in text:
        return CHANGED
    return {400: "API_PARAMETER", 403: "PVE_PRIV_MISSING"}.get(error.status, "API_REFUSED")


def _details(error: ApiError) -> tuple[str, ...]:
    return tuple(f"{key}: {value.strip()}" for key, value in error.errors.items())


def _understood(read: Callable[[object], object], body: object) -> object:
    """Return what an answer says; Unknown where no reader takes it, as a number without end."""
    try:
        return read(body)
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
        return Unknown(f"the answer of the API is not understood: {str(error)[:100]}")
