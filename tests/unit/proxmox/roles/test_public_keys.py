from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import load
from provision.hosts.public_keys import login_keys
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY

OWN, OTHER = "ssh-ed25519 AAAA me", "ssh-ed25519 BBBB you"


def keys_of(tmp_path: Path, access: str, node: str = "") -> tuple[str, ...]:
    """Return the keys of vm-1's login."""
    (tmp_path / "id.pub").write_text(f"{OWN}\n")
    file = tmp_path / "site.yaml"
    text = INVENTORY.replace("access: { user: debian, key: ./id }", f"access: {{ user: debian, {access} }}")
    file.write_text(text.replace("address: 10.0.0.11 }", f"address: 10.0.0.11, {node} }}"))
    inventory = load(file).inventory
    return login_keys(inventory, inventory.nodes["vm-1"])


def test_our_own_key_comes_first_and_every_key_once(tmp_path: Path) -> None:
    assert keys_of(tmp_path, "key: ./id") == (OWN,)
    assert keys_of(tmp_path, f'key: ./id, authorized_keys: ["{OTHER}", "{OWN}"]') == (OWN, OTHER)


@pytest.mark.parametrize(
    ("access", "node", "line"),
    [
        ("key: ./away", "", "access:"),
        ("key: ./id", "ssh: { key: ./away }", "vm-1:"),
    ],
)
def test_a_public_key_that_is_not_there_points_at_the_private_one(
    access: str, node: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        keys_of(tmp_path, access, node)
    (problem,) = caught.value.diagnostics
    assert problem.code == "PUBLIC_KEY_MISSING"
    assert f"`ssh-keygen -y -f {tmp_path / 'away'} > {tmp_path / 'away.pub'}`" in problem.remedy
    assert problem.source is not None
    assert problem.source.text.strip().startswith(line)
