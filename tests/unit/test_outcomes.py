from provision.values.outcomes import ExitCode, worst


def test_the_worst_exit_code_wins_by_precedence_and_not_by_number() -> None:
    assert worst([]) is ExitCode.DONE
    assert worst([ExitCode.CHANGES, ExitCode.WAITING]) is ExitCode.WAITING
    assert worst([ExitCode.USAGE, ExitCode.LOCKED, ExitCode.ERROR]) is ExitCode.LOCKED
    assert worst([ExitCode.VERIFY_FAILED, ExitCode.UNKNOWN]) is ExitCode.VERIFY_FAILED
