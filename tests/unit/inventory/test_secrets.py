from __future__ import annotations

import sys
from pathlib import Path

import pytest

from provision.inventory import Inventory, Secret, unopenable
from provision.values.errors import UsageError
from provision.values.redaction import Redactor

from .conftest import SITE, Loads, marked


def token(inventory: Inventory) -> Secret:
    token = inventory.hypervisors["pve"].api.token
    assert token is not None
    return token


def with_secret(loads: Loads, reference: str) -> Secret:
    return token(loads(SITE.replace("!secret { env: TOKEN }", f"!secret {{ {reference} }}")))


def test_an_environment_secret_is_read_when_opened(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = with_secret(loads, "env: PROVISION_TEST_TOKEN")
    monkeypatch.setenv("PROVISION_TEST_TOKEN", "planted-value")
    assert secret.open(Redactor()).get_secret_value() == "planted-value"
    assert "planted-value" not in repr(secret) + str(secret) + repr(secret.open(Redactor()))


def test_file_secret_is_relative_to_the_inventory_and_loses_its_newline(loads: Loads, tmp_path: Path) -> None:
    secret = with_secret(loads, "file: ./token")
    (tmp_path / "token").write_text("planted-value\n")
    assert secret.open(Redactor()).get_secret_value() == "planted-value"


def test_a_command_secret_is_what_it_prints(loads: Loads) -> None:
    secret = with_secret(loads, f"command: [{sys.executable}, -c, \"print('planted-value')\"]")
    assert secret.open(Redactor()).get_secret_value() == "planted-value"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("env: PROVISION_TEST_UNSET", "is not set"),
        ("file: ./none", "No such file"),
        ("file: /", "Is a directory"),
        ("file: /dev/null", "is empty"),
        ("command: [/none/such]", "cannot be run"),
        ("command: [sh, -c, 'echo planted-value; exit 3']", "status 3"),
        ("command: [sh, -c, 'printf \"\\377\"']", "not UTF-8"),
    ],
)
def test_a_secret_that_cannot_be_had_names_its_reference_and_place(
    loads: Loads, reference: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        with_secret(loads, reference).open(Redactor())
    (problem,) = caught.value.diagnostics
    assert problem.source is not None
    assert problem.source.line == 13
    assert problem.remedy or "UTF-8" in words
    assert "planted-value\n" not in str(caught.value)


def test_loading_opens_no_secret(loads: Loads, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with_secret(loads, f"command: [touch, {mark}]")
    assert not mark.exists()


def test_every_secret_of_a_part_is_opened_and_all_problems_come_at_once(loads: Loads) -> None:
    resources = (
        "{ kind: file, path: /x, secret: !secret { env: PROVISION_TEST_B } }, "
        "{ kind: file, path: /y, secret: !secret { env: PROVISION_TEST_B } }"
    )
    text = SITE.replace("cores: 2,", f"cores: 2, host_resources: [{resources}],")
    text = text.replace("vmid: 101,", "vmid: 101, k3s: server,").replace(
        "env: TOKEN", "env: PROVISION_TEST_A"
    )
    inventory = loads(text + "k3s: { version: v1.35.7+k3s1, token: !secret { env: PROVISION_TEST_C } }\n")
    parts = [((key,), getattr(inventory, key)) for key in ("hypervisors", "nodes", "k3s")]
    problems = unopenable(inventory, parts)
    assert [(problem.code, problem.source is not None) for problem in problems] == [
        ("SECRET_UNREADABLE", True)
    ] * 3
    named = [problem.summary.partition("PROVISION_TEST_")[2][:1] for problem in problems]
    assert named == ["A", "B", "C"], "each once, though nodes share their profile's list"


def test_a_command_that_gives_a_secret_runs_once(loads: Loads, tmp_path: Path) -> None:
    command = f"command: [sh, -c, 'echo ran >> {tmp_path}/log; echo planted-value']"
    secret = with_secret(loads, command)
    assert {secret.open(Redactor()).get_secret_value() for _ in range(3)} == {"planted-value"}
    assert (tmp_path / "log").read_text() == "ran\n"
    assert "planted-value'" not in repr(secret)


def test_files_that_plan_would_open_are_looked_for_only_when_asked(loads: Loads, tmp_path: Path) -> None:
    (tmp_path / "there.j2").write_text("x")
    (tmp_path / "folder").mkdir()
    resources = (
        "{ kind: file, path: /x, template: ./there.j2 }, { kind: file, path: /y, template: ./gone.j2 },\n"
        "    { kind: file, path: /z, template: ./folder }"
    )
    text = SITE.replace("key: ~/.ssh/id", "key: ./no-key, known_hosts: ./later")
    inventory = loads(text.replace("cores: 2,", f"cores: 2, host_resources: [{resources}],"))
    problems = unopenable(inventory, [(("access",), inventory.access), (("nodes",), inventory.nodes)])
    assert [(problem.code, marked(problem), problem.remedy.partition(":")[0]) for problem in problems] == [
        ("FILE_UNREADABLE", "./no-key", "correct the name, or create a key"),
        ("FILE_UNREADABLE", "./gone.j2", "correct the name, or create the file"),
        ("FILE_UNREADABLE", "./folder", "correct the name, or create the file"),
    ]
