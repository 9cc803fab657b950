import subprocess

from provision.contracts.query import Frame, Unknown
from provision.hosts.queries.shell import Shell, ShellKind, ShellResult

KIND = ShellKind()
QUESTIONS = (
    Shell("echo out; echo err >&2; exit 3"),
    Shell("cat"),
    Shell("printf 'no newline'"),
    Shell("printf '\\n@x b\\n'"),
    Shell("set -e; false; echo never"),
    Shell("true # a comment at the end"),
)


def ask(shell: list[str]) -> Frame:
    result = subprocess.run([*shell, "-c", KIND.script(QUESTIONS)], capture_output=True, check=False)
    return Frame(result.stdout, result.stderr, result.returncode)


def test_each_command_keeps_its_own_status_and_streams() -> None:
    answers = KIND.parse(ask(["sh"]), QUESTIONS)
    assert answers[QUESTIONS[0]] == ShellResult(3, b"out\n", b"err\n")
    assert answers[QUESTIONS[1]] == ShellResult(0, b"", b"")
    assert answers[QUESTIONS[2]] == ShellResult(0, b"no newline", b"")
    assert answers[QUESTIONS[3]] == ShellResult(0, b"\n@x b\n", b"")
    assert answers[QUESTIONS[4]] == ShellResult(1, b"", b"")
    assert answers[QUESTIONS[5]] == ShellResult(0, b"", b"")


def test_a_cut_answer_is_unknown() -> None:
    whole = ask(["sh"])
    full = KIND.parse(whole, QUESTIONS)
    assert len(whole.stdout) > 100
    for cut in range(len(whole.stdout)):
        answers = KIND.parse(Frame(whole.stdout[:cut], whole.stderr, None), QUESTIONS)
        for query in QUESTIONS:
            seen = answers[query]
            assert isinstance(seen, Unknown) or seen == full[query]
