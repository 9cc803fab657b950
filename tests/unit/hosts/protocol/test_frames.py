"""The parser: whatever arrives, in whatever pieces, it neither raises nor mixes up frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provision.contracts.query import Frame
from provision.hosts.protocol.frames import FrameParser, Kept

NONCE = "p0123456789abcdef01234567"
MARK = NONCE.encode()


def stream(*frames: tuple[int, bytes, int | None]) -> bytes:
    parts = []
    for index, data, rc in frames:
        parts.append(b"\n%s b %d\n%s" % (MARK, index, data))
        if rc is not None:
            parts.append(b"\n%s e %d %d\n" % (MARK, index, rc))
    return b"".join(parts)


def parse(stdout: bytes, stderr: bytes = b"", sizes: tuple[int, ...] = (), keep: int = 1000) -> FrameParser:
    parser = FrameParser(NONCE, keep=keep)
    for data, is_stderr in ((stdout, False), (stderr, True)):
        start = 0
        for size in sizes:
            parser.feed(data[start : start + size], is_stderr)
            start += size
        parser.feed(data[start:], is_stderr)
    parser.finish()
    return parser


HOSTILE = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                b"\n",
                MARK,
                b"\n" + MARK,
                b"\n" + MARK + b" ",
                b"\n" + MARK + b" b",
                b"\n" + MARK[:-1] + b" b 1\n",
                b"\n" + MARK + b" b x\n",
                b"\n" + MARK + b" e 1\n",
                b"\n" + MARK + b" e 1 0",
                b"x" + MARK + b" e 1 0\n",
                b"\r\n",
                b"\0",
                b"\xff",
            ]
        ),
        max_size=6,
    ).map(b"".join),
)
SIZES = st.lists(st.integers(1, 9), max_size=40).map(tuple)


def harmless(data: bytes) -> bool:
    """No complete mark: those can only be printed by someone who knows the nonce."""
    return MARK + b" e 1 0\n" not in data and not data.endswith(MARK + b" e 1 0")


@given(HOSTILE.filter(harmless), HOSTILE.filter(harmless), SIZES)
def test_output_is_returned_byte_for_byte_in_any_pieces(
    first: bytes, second: bytes, sizes: tuple[int, ...]
) -> None:
    parser = parse(stream((0, b"hi\n", 0), (1, first, 3), (2, second, 0)), b"", sizes)
    assert parser.frame(0) == Frame(b"hi\n", b"", 0)
    assert parser.frame(1) == Frame(first, b"", 3)
    assert parser.frame(2) == Frame(second, b"", 0)
    assert parser.outside() == b""


@given(st.binary(max_size=300), st.binary(max_size=300), SIZES)
def test_any_bytes_are_parsed_without_an_error(stdout: bytes, stderr: bytes, sizes: tuple[int, ...]) -> None:
    parser = parse(stdout, stderr, sizes)
    assert parser.frame(0) is None
    assert parser.outside() == stdout + stderr


@given(HOSTILE, HOSTILE, SIZES)
def test_hostile_output_never_raises_and_keeps_the_frames_before_it(
    before: bytes, data: bytes, sizes: tuple[int, ...]
) -> None:
    parser = parse(before + stream((0, b"hi", 0), (1, data, 7)), data, sizes)
    if MARK not in before:
        assert parser.frame(0) == Frame(b"hi", b"", 0)


def test_a_cut_at_every_byte_keeps_whole_frames_only() -> None:
    whole = stream((0, b"hello\n", 0), (1, b"one", 0), (2, b"\ntwo\n\n", 5), (3, b"", 0))
    ends = [whole.index(b"\n%s e %d " % (MARK, index)) for index in range(4)]
    begins = [whole.index(b" b %d\n" % index) + 5 for index in range(4)]
    lines = [whole.index(b"\n", end + 1) + 1 for end in ends]
    for cut in range(len(whole) + 1):
        parser = parse(whole[:cut])
        for index, data in enumerate((b"hello\n", b"one", b"\ntwo\n\n", b"")):
            frame = parser.frame(index)
            if cut < begins[index]:
                assert frame is None
            elif cut < lines[index]:
                assert frame is not None
                assert frame.rc is None
                assert (frame.stdout + b"\n" + MARK).startswith(frame.stdout)
                assert (data + b"\n%s e %d " % (MARK, index)).startswith(frame.stdout[: len(data)])
            else:
                assert frame is not None
                assert (frame.stdout, frame.rc) == (data, (0, 0, 5, 0)[index])


def test_the_status_comes_from_stderr_when_stdout_lost_it() -> None:
    parser = FrameParser(NONCE)
    parser.feed(stream((1, b"a", None)), stderr=False)
    parser.feed(stream((1, b"b", 4)), stderr=True)
    parser.finish()
    assert parser.frame(1) == Frame(b"a", b"b", 4)


def test_a_banner_stays_outside() -> None:
    parser = parse(b"Welcome\n" + stream((0, b"", 0)) + b"\nlogout\n", b"warning\n")
    assert parser.outside() == b"Welcome\n\nlogout\nwarning\n"


def test_the_open_frame_is_known_while_it_runs() -> None:
    parser = FrameParser(NONCE)
    parser.feed(stream((1, b"", 0), (2, b"abc", None)), stderr=False)
    assert parser.open == 2
    parser.feed(b"\n%s e 2 0\n" % MARK, stderr=False)
    assert parser.open is None


def test_a_second_frame_of_the_same_index_changes_nothing() -> None:
    assert parse(stream((1, b"real", 0), (1, b"forged", 9))).frame(1) == Frame(b"real", b"", 0)


def test_the_end_of_another_frame_ends_nothing() -> None:
    parser = parse(stream((1, b"a\n%s e 2 0\nb" % MARK, 0)))
    frame = parser.frame(1)
    assert frame is not None
    assert frame.rc == 0


def test_callbacks_run_when_frames_begin_and_end() -> None:
    heard: list[object] = []
    parser = FrameParser(
        NONCE,
        on_begin=lambda index: heard.append(("begin", index)),
        on_end=lambda index: heard.append(("end", index)),
        on_output=lambda index, data: heard.append((index, data)),
    )
    parser.feed(stream((0, b"x", 0), (1, b"y", 1)), stderr=False)
    parser.feed(stream((1, b"z", 1)), stderr=True)
    assert heard == [("begin", 0), (0, b"x"), ("end", 0), ("begin", 1), (1, b"y"), ("end", 1), (1, b"z")]


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 20))
def test_first_and_last_bytes_stay_and_the_rest_is_counted(pieces: list[bytes], keep: int) -> None:
    kept = Kept(keep)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    value, dropped = kept.value()
    if len(whole) <= 2 * keep:
        assert (value, dropped) == (whole, 0)
    else:
        assert value == whole[:keep] + b"\n" + whole[-keep:]
        assert dropped == len(whole) - 2 * keep
