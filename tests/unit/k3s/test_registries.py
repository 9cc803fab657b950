"""What k3s's registries.yaml says: mirrors and logins of `sources`, and what `k3s.registries` says itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.api.domains import load_inventory as load
from provision.k3s.configuration import registries
from provision.k3s.roles.common import files

SITE = """
version: 1
name: site
access: { user: root }
sources:
  registries: { docker.io: "https://mirror.example" }
  logins:
    docker.io: { user: hub, password: !secret { env: HUB } }
    mirror.example: { user: lab, password: !secret { env: LAB } }
k3s:
  version: v1.35.7+k3s1
  registries:
    configs:
      mirror.example: { tls: { ca_file: /etc/ca.pem } }
nodes:
  s1: { address: 198.51.100.1, k3s: server }
"""


def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = SITE) -> Path:
    monkeypatch.setenv("HUB", "hub-password")
    monkeypatch.setenv("LAB", "lab-password")
    file = tmp_path / "site.yaml"
    file.write_text(text)
    return file


def test_logins_stand_at_the_host_that_k3s_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = load(site(tmp_path, monkeypatch))
    assert inventory.k3s is not None
    assert registries(inventory, inventory.k3s) == {
        "mirrors": {"docker.io": {"endpoint": ["https://mirror.example"]}},
        "configs": {
            "registry-1.docker.io": {"auth": {"username": "hub", "password": "hub-password"}},
            "mirror.example": {
                "auth": {"username": "lab", "password": "lab-password"},
                "tls": {"ca_file": "/etc/ca.pem"},
            },
        },
    }


def test_what_the_user_wrote_for_k3s_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = SITE.replace("{ tls: { ca_file: /etc/ca.pem } }", "{ auth: { username: own, password: mine } }")
    inventory = load(site(tmp_path, monkeypatch, own))
    assert inventory.k3s is not None
    configs = registries(inventory, inventory.k3s)["configs"]
    assert configs["mirror.example"]["auth"] == {"username": "own", "password": "mine"}


def test_the_file_is_secret_and_nobody_else_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = load(site(tmp_path, monkeypatch))
    made = files(inventory, inventory.nodes["s1"], "k3s.service", {}, SecretStr("token"))
    (file,) = [one for one in made if getattr(one, "path", "").endswith("/registries.yaml")]
    assert (file.mode, file.secret) == ("0600", True)  # type: ignore[attr-defined]  # a K3sFile
    assert "lab-password" not in repr(file)
    assert inventory.redactor.text("it says lab-password") == "it says ***"
