"""Templates have limits in size and time, and a table of what passed them before."""

from __future__ import annotations

import time

import pytest

from provision.hosts import limited_templates
from provision.hosts.templating import render
from provision.values.errors import UsageError

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = "{% set a = 'aaaaaaaaaa' %}" + "{% set a = a ~ a %}" * 60 + "{{ a|length }}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 10**10 * 'a' }}",
        "{{ [1] * 10**9 }}",
        "{{ 9 ** 99 ** 9 }}",
        LOOPS,
        "{% for a in range(10**9) %}{% endfor %}",
        DOUBLED,
        "{{ lipsum(n=2000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a'|center(10**10) }}",
        "{{ 'a'|indent(10**10) }}",
        "{{ {'a': 1}|tojson(indent=10**9) }}",
        "{{ range(99999)|join('x' * 100000) }}",
        "{{ 'aaaa'.replace('a', 'b' * 100000).replace('b', 'c' * 100000) }}",
        "{{ 'aaaa'|replace('a', 'b' * 100000)|replace('b', 'c' * 100000) }}",
        "{{ ('b' * 999999) ~ ('c' * 999999) }}",
        "{{ " + " ~ ".join(["('a' * 999999)"] * 200) + " }}",
        "{{" * 256,
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_what_passes_a_limit_is_refused_soon(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_templates, "SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(UsageError, match="TEMPLATE_ERROR"):
        render(text, {"x": "v"}, "content")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{ x|upper }}-{{ 3 * 4 }} {{ 'a' * 3 }} {{ [1, 2]|join(',') }}", "V-12 aaa 1,2"),
        ("{{ 5 % 3 }} {{ 2 ** 10 }}", "2 1024"),
        ("{% for n in range(3) %}{{ n }}{% if not loop.last %},{% endif %}{% endfor %}", "0,1,2"),
        ("{{ x.replace('v', 'w') }} {{ {'a': 1}|tojson }} {{ 'a\nb'|indent(2) }}", 'w {"a": 1} a\n  b'),
        ("{{ x ~ 'y' + 'z' }}", "vyz"),
    ],
)  # fmt: skip
def test_ordinary_templates_become_what_they_did(text: str, rendered: str) -> None:
    assert render(text, {"x": "v"}, "content") == rendered
