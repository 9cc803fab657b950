"""Texts of the inventory: strict, sandboxed, and free where there is nothing to fill in."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.hosts import templating
from provision.hosts.templating import read_template, render
from provision.values.diagnostics import Source
from provision.values.errors import UsageError

SOURCE = Source("lab.yaml", 7, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain { } % text\n", "plain { } % text\n"),
        ("{{ name }}\n", "vm-1\n"),
        ("{% for each in names %}{{ each }} {% endfor %}", "a b "),
        ("{{ quoted }}", "<&>\"'"),
        ("{# nothing #}x\n\n", "x\n\n"),
        ("{{ port + 1 }}", "81"),
        ("{{ name | upper }}", "VM-1"),
    ],
)
def test_texts_are_filled_in(text: str, expected: str) -> None:
    values = {"name": "vm-1", "names": ["a", "b"], "quoted": "<&>\"'", "port": 80}
    assert render(text, values, "content of /a") == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ nope }}",
        "{{ name.nope }}",
        "{{ name",
        "{% if %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ names.append('c') }}",
        "{{ name + 1 }}",
        "{{ 1 / 0 }}",
        "{% include 'x' %}",
        "{{ 'x' * 2000000 }}",
        "{{ range(10000000) | list }}",
    ],
)
def test_what_is_wrong_or_forbidden_is_told_with_its_position(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        render(text, {"name": "vm-1", "names": ["a"]}, "content of /a", SOURCE)
    (problem,) = raised.value.diagnostics
    assert problem.code == "TEMPLATE_ERROR"
    assert problem.source == SOURCE
    assert "content of /a" in problem.summary


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * (1024 * 1024 + 1)])
def test_unreadable_templates_are_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "t.j2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_template(path, SOURCE)
    assert raised.value.diagnostics[0].code == "TEMPLATE_UNREADABLE"
    assert raised.value.diagnostics[0].source == SOURCE


VALUES = {
    "name": "vm-1",
    "port": 80,
    "flag": True,
    "nothing": None,
    "none": "x",
    "end": "a\r\n",
    "ratio": 0.5,
}


@pytest.mark.parametrize(
    "text",
    [
        "/srv/{{ name }}/{{port}}.conf",
        "{{ name }}{{   port   }}\n\n",
        "{{ flag }} {{ nothing }} {{ ratio }}",
        "{{ none }} {{ True }}",
        "{{ end }}",
        "a\r\nb {{ name }}\r",
        "}} {{ name }} %}",
        "{ {{ name }} }",
        "{{- name -}} x",
        "{{ name }}{# a comment #}",
        "{% raw %}{{ name }}{% endraw %}",
    ],
)
def test_names_are_filled_in_as_the_template_library_does(text: str) -> None:
    assert render(text, VALUES, "x") == templating._environment().from_string(text).render(VALUES)


@pytest.mark.parametrize("text", ["{{{ name }}}", "{{ not }}", "{{ missing }}", "{{ name }} {{"])
def test_what_the_template_library_refuses_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="TEMPLATE_ERROR"):
        render(text, VALUES, "x")


def test_a_path_with_one_name_needs_no_template_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templating, "_compiled", None)
    assert render("/etc/{{ name }}.conf", VALUES, "x") == "/etc/vm-1.conf"
