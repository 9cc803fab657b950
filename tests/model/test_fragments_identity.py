"""The question about a machine's identity, run by real shells."""

from __future__ import annotations

import pytest

from provision.hosts.queries.identity import IDENTITY_KIND, Identity, MachineIdentity
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_says_which_machine_it_is(shell: str) -> None:
    frame = run(shell, IDENTITY_KIND.script([Identity()]))
    answer = IDENTITY_KIND.parse(frame, [Identity()])[Identity()]
    assert isinstance(answer, MachineIdentity), answer
    assert answer.hostname
