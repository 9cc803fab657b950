"""A kubeconfig is read whole, or refused with the reason and without its secrets."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.connections.kubeconfig import endpoint_of
from provision.values.errors import Permanent

SECRET = "planted-private-key"


def text_of(cluster: dict[str, object] | None = None, user: dict[str, object] | None = None) -> str:
    data = base64.b64encode(b"AUTHORITY").decode()
    known = {"server": "https://127.0.0.1:6443", "certificate-authority-data": data, **(cluster or {})}
    key = {"client-key-data": base64.b64encode(SECRET.encode()).decode()} if user is None else user
    return yaml.safe_dump(
        {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": known}],
            "users": [{"name": "u", "user": key}],
        }
    )


def test_the_current_context_leads_to_server_and_credentials() -> None:
    endpoint = endpoint_of(text_of(), where="f")
    assert (endpoint.url, endpoint.authority) == ("https://127.0.0.1:6443", "AUTHORITY")
    assert endpoint.key is not None
    assert endpoint.key.get_secret_value() == SECRET
    assert SECRET not in repr(endpoint)


def test_files_beside_the_kubeconfig_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("FROM FILE")
    text = text_of({"certificate-authority-data": None, "certificate-authority": "ca.crt"})
    assert endpoint_of(text, where=str(tmp_path / "config")).authority == "FROM FILE"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (text_of({"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify"),
        (text_of(user={"exec": {"command": "aws"}}), "logs in by a program"),
        (text_of({"certificate-authority-data": None}), "no certificate-authority-data"),
        (text_of({"certificate-authority-data": "%%"}), "not base64"),
        ("current-context: b", "no context 'b'"),
        ("[]", "no current context"),
        ("a: [", "not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(text: str, words: str) -> None:
    with pytest.raises(Permanent, match="KUBECONFIG_INVALID") as caught:
        endpoint_of(text, where="f")
    assert words in str(caught.value)


@pytest.mark.hypothesis
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["a", ":", " ", "\n", "[", "{", "-", "&", "contexts"]), max_size=9).map("".join)
)
def test_any_text_is_refused_and_raises_nothing_else(text: str) -> None:
    with pytest.raises(Permanent):
        endpoint_of(text, where="f")
