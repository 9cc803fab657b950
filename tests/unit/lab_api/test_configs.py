from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provision.lab.api.configs import VmConfig, parse

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
DESCRIPTION = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
KEYS = st.sampled_from(["cores", "name", "net0", "sshkeys", "tags", "scsi0"])


@given(
    st.dictionaries(KEYS, LINES),
    DESCRIPTION,
    st.dictionaries(KEYS, LINES),
    st.sets(KEYS, max_size=3),
)
def test_a_file_reads_back_as_it_was_written(
    values: dict[str, str], description: str, pending: dict[str, str], deleted: set[str]
) -> None:
    config = VmConfig(
        100, {**values, "description": description}, {**pending, "description": description}, deleted
    )
    assert parse(100, config.text()) == config


def test_pending_changes_come_into_force_together() -> None:
    config = VmConfig(100, {"cores": "1", "args": "x"}, {"cores": "2", "name": "a"}, {"args"})
    assert config.merged() == {"cores": "2", "name": "a"}
    assert config.values == {"cores": "1", "args": "x"}
    config.apply_pending()
    assert (config.values, config.pending, config.deleted) == ({"cores": "2", "name": "a"}, {}, set())


def test_the_digest_changes_with_pending_values_too() -> None:
    config = VmConfig(100, {"cores": "1"})
    before = config.digest()
    config.pending = {"cores": "2"}
    assert config.digest() != before
    config.pending = {"cores": "1"}
    config.forget_equal()
    assert config.digest() == before
