"""`/nodes/{node}/tasks`: lists, status and log of tasks."""

from __future__ import annotations

from typing import Any

from provision.lab.api.core import NODE, Call, Route, Total
from provision.lab.api.errors import bad_parameter
from provision.lab.api.schema import Field, Params
from provision.lab.api.tasks import CUT_OFF, UPID, Task

_TASK = {"node": NODE, "upid": Field(required=True)}
_COUNT = Field("integer", minimum=0)
TEXT = Field()


def _may_see(call: Call, task: Task) -> bool:
    fields = task.fields()
    own = fields["user"] == call.auth.user and (
        call.auth.token is None or fields.get("tokenid") == call.auth.token
    )
    return own or call.may(f"/nodes/{call.lab.node}", "Sys.Audit")


def _find(call: Call) -> Task:
    upid = call.text("upid")
    if UPID.fullmatch(upid) is None:
        raise bad_parameter("upid", "unable to parse worker upid")
    task = call.lab.tasks.get(upid)
    if task is None:
        raise bad_parameter("upid", "no such task")
    if not _may_see(call, task):
        call.check(f"/nodes/{call.lab.node}", "Sys.Audit")
    return task


def _entry(call: Call, task: Task) -> dict[str, Any]:
    entry = task.fields()
    if not call.lab.tasks.is_running(task):
        entry |= {"endtime": task.end or task.start, "status": call.lab.tasks.exit_status(task)}
    return entry


def _matches_filters(call: Call, task: Task) -> bool:
    fields, lab = task.fields(), call.lab
    alive = lab.tasks.is_running(task)
    source = call.text("source", "archive")
    status = lab.tasks.exit_status(task)
    return (
        (source == "all" or (source == "active") == alive)
        and ("vmid" not in call.params or fields["id"] == call.text("vmid"))
        and call.text("typefilter", fields["type"]) == fields["type"]
        and call.text("userfilter") in fields["user"]
        and not (call.flag("errors") and (alive or status == "OK"))
        and call.number("since") <= fields["starttime"]
        and _may_see(call, task)
    )


def _list(call: Call) -> Total:
    entries = [_entry(call, task) for task in call.lab.tasks.newest_first() if _matches_filters(call, task)]
    start = call.number("start")
    return Total(entries[start : start + call.number("limit", 50)], len(entries))


def _cluster(call: Call) -> Any:
    return [
        _entry(call, task) | {"saved": str(int(not call.lab.tasks.is_running(task)))}
        for task in call.lab.tasks.newest_first()[:25]
        if _may_see(call, task)
    ]


def _status(call: Call) -> Any:
    task = _find(call)
    entry = task.fields()
    if call.lab.tasks.is_running(task):
        return entry | {"status": "running"}
    # Read again: it may have ended in between, and only then its file is complete.
    task = call.lab.tasks.get(task.upid) or task
    return entry | {"status": "stopped", "exitstatus": task.status or CUT_OFF}


def _log(call: Call) -> Total:
    lines = call.lab.tasks.log(_find(call))
    start = call.number("start")
    limit = call.number("limit", 50) or len(lines)
    shown = [{"n": number, "t": text} for number, text in enumerate(lines, 1)][start : start + limit]
    return Total(shown or [{"n": 1, "t": "no content"}], len(lines) or 1)


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/nodes/{node}/tasks",
        _list,
        Params(
            {
                "node": NODE,
                "limit": _COUNT,
                "start": _COUNT,
                "since": _COUNT,
                "until": _COUNT,
                "vmid": Field("integer", minimum=100),
                "errors": Field("boolean"),
                "source": Field(choices=("archive", "active", "all")),
                "typefilter": TEXT,
                "statusfilter": TEXT,
                "userfilter": TEXT,
            }
        ),
    ),
    Route("GET", "/cluster/tasks", _cluster),
    Route("GET", "/nodes/{node}/tasks/{upid}/status", _status, Params(_TASK)),
    Route(
        "GET",
        "/nodes/{node}/tasks/{upid}/log",
        _log,
        Params({**_TASK, "start": _COUNT, "limit": _COUNT, "download": Field("boolean")}),
    ),
)
