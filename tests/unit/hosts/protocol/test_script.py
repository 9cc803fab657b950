from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from provision.api.domains import effect_classes
from provision.contracts import common_effects
from provision.contracts.effect import Effect, EffectClass
from provision.hosts import host_effects
from provision.hosts.protocol.script import (
    Step,
    act_script,
    effect_fragment,
    marker_name,
    new_nonce,
    observe_script,
)
from provision.k3s import k3s_effects

RESTART = Effect(host_effects.RESTART, "chrony.service")


def test_nonces_differ_and_have_at_least_64_bits() -> None:
    nonces = {new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(re.fullmatch(r"p[0-9a-f]{16,}", nonce) for nonce in nonces)


@pytest.mark.parametrize(
    "script",
    [
        observe_script("pabc", ["echo 1", "echo 2"]),
        act_script(
            "pabc", "run", "me", [Step("echo 1", marks=(RESTART,)), Step("echo 2", clears=(RESTART,))]
        ),
    ],
)
def test_a_script_is_functions_and_one_last_line(script: bytes) -> None:
    text = script.decode("ascii")
    outside, depth = [], 0
    for line in text.splitlines():
        if re.fullmatch(r"[a-z_0-9]+\(\) \{", line):
            depth += 1
        elif line == "}" and depth:
            depth -= 1
        elif not depth:
            outside.append(line)
    assert outside == ["main"]
    assert text.endswith("\nmain\n")


def test_fragments_run_strictly_and_without_the_rest_of_the_script() -> None:
    text = observe_script("pabc", ["echo 1"]).decode()
    assert "( set -eu\necho 1\n) </dev/null\nrc=$?\n" in text


def test_probes_neither_lock_nor_write() -> None:
    text = observe_script("pabc", ["echo 1"]).decode()
    assert not re.search(r"flock|mkdir|mv |rm |>>|mktemp", text)


def test_placeholders_in_fragments_and_targets_stay_as_they_are() -> None:
    effect = Effect(host_effects.RESTART, "@RUN@")
    text = act_script("pabc", "r", "w", [Step("echo @STATE@ @NONCE@", marks=(effect,))]).decode()
    assert "echo @STATE@ @NONCE@" in text
    assert "@RUN@" in text


def test_values_are_quoted() -> None:
    text = act_script("pabc", "r'1", "me; rm -rf /", [], state="/var/lib/pro vision").decode()
    assert "'me; rm -rf /'" in text
    assert "mkdir -p '/var/lib/pro vision'/pending" in text
    assert "'r'\"'\"'1'" in text


def test_text_in_other_alphabets_is_kept() -> None:
    assert "grüß".encode() in observe_script("pabc", ["printf %s 'grüß'"])
    assert b"\xff" in observe_script("pabc", ["printf %s '\udcff'"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: observe_script("pabc", ["printf '\0'"]),
        lambda: act_script("pabc", "a\tb", "w", []),
        lambda: act_script("pabc", "r", "w\n", []),
        lambda: act_script("pabc", "r", "w", [Step(":", marks=(Effect(host_effects.RESTART, "a\nb"),))]),
        lambda: act_script("pabc", "r", "w", [Step(":", blobs=("../../etc/passwd",))]),
    ],
)
def test_text_that_would_break_the_script_is_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()


def test_markers_of_different_effects_have_different_names() -> None:
    effects = [
        Effect(cls, target) for cls in effect_classes().values() for target in ("", "a", "b", "../x", "a b")
    ]
    names = {marker_name(effect) for effect in effects}
    assert len(names) == len(effects)
    assert all(re.fullmatch(r"[a-z0-9-]+(\.[0-9a-f]{16})?", name) for name in names)


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (Effect(host_effects.DAEMON_RELOAD), "systemctl daemon-reload"),
        (Effect(host_effects.INITRAMFS), "update-initramfs -u -k all"),
        (Effect(host_effects.INITRAMFS), "dracut --regenerate-all"),
        (Effect(host_effects.BOOT_LOADER), "proxmox-boot-tool refresh"),
        (Effect(host_effects.BOOT_LOADER), "update-grub"),
        (RESTART, "systemctl restart -- chrony.service"),
        (Effect(host_effects.RELOAD, "ssh.service"), "try-reload-or-restart -- ssh.service"),
        (Effect(host_effects.RESTART, "a;b"), "systemctl restart -- 'a;b'"),
        (Effect(k3s_effects.RESTART_K3S), "k3s-agent"),
    ],
)
def test_effects_have_their_commands(effect: Effect, words: str) -> None:
    assert words in (effect_fragment(effect) or "")


@pytest.mark.parametrize(
    "cls", [host_effects.REBOOT_NODE, common_effects.REPLACE, common_effects.DELETE, host_effects.RESTART]
)
def test_effects_that_no_fragment_performs_have_none(cls: EffectClass) -> None:
    assert effect_fragment(Effect(cls)) is None
