from __future__ import annotations

import base64
import html
import json
import re
import shlex
import textwrap
import threading
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from provision.values.redaction import MASK, Redactor, printable

SECRET = "hunter2-It's $ecret!"
QUOTE, BACKSLASH = "'", "\\"


def streamed(redactor: Redactor, data: bytes, sizes: list[int]) -> bytes:
    stream = redactor.stream()
    out, start = b"", 0
    for size in sizes:
        out += stream.feed(data[start : start + size])
        start += size
    return out + stream.feed(data[start:]) + stream.flush()


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        shlex.quote(SECRET),
        json.dumps({"password": SECRET}),
        f"https://x/?p={quote(SECRET, safe='')}",
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"a" + SECRET.encode()).decode(),
        base64.b64encode(b"user:" + SECRET.encode() + b"\n").decode(),
        base64.urlsafe_b64encode(b"ab" + SECRET.encode()).decode(),
        f"https://x/?p={quote_plus(SECRET)}",
        quote(SECRET, safe="").replace("%2", "%2".lower()),
        html.escape(SECRET),
        html.escape(SECRET, quote=False),
        json.dumps(json.dumps({"password": SECRET})),
        base64.b64encode(json.dumps({"p": SECRET}).encode()).decode(),
        base64.b64encode(base64.b64encode(SECRET.encode())).decode(),
        base64.b32encode(SECRET.encode()).decode(),
        json.dumps(SECRET).replace("'", "\\u0027"),
        f"'{SECRET.replace(QUOTE, QUOTE * 2)}'",
        f'"{SECRET.replace("$", BACKSLASH + "$")}"',
        re.escape(SECRET),
        re.sub(r"([^\w-])", r"\\\1", SECRET),
        html.escape(SECRET).replace("&#x27;", "&apos;"),
        "".join(f"&#{ord(letter)};" for letter in SECRET),
        "".join(f"&#x{ord(letter):X};" for letter in SECRET),
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        quote(quote(SECRET, safe=""), safe=""),
        "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
        "".join(f"\\x{byte:02x}" for byte in SECRET.encode()),
        "".join(f"\\{byte:03o}" for byte in SECRET.encode()),
        "".join(f"={byte:02X}" for byte in SECRET.encode()),
        SECRET.encode().hex(":"),
        SECRET.encode().hex(" ").upper(),
        "0x" + SECRET.encode().hex("-").replace("-", ", 0x"),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_every_form_of_a_secret_is_masked(shown: str) -> None:
    masked = Redactor(SecretStr(SECRET)).text(f"before {shown} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "unter2" not in masked
    # what base64 leaves unmasked are single characters that it shares with its neighbours
    assert len(masked) < len("before  after") + 40


LONG = "a token of some length, which base64 writes on more than one line, as openssl does"


@pytest.mark.parametrize(
    "shown",
    [
        "hunter2-\x1b[1mIt's\x1b[0m $ecret!",
        "\x1b]0;title\x07hunter2-It\x1b(B's $ecret!",
        "h\x00unter2-It's\r $ecret\x7f!",
        "hun\u200bter2\u00ad-It's\u202e $ecret\ufeff!",
        "\n".join(textwrap.wrap(base64.b64encode(LONG.encode()).decode(), 64)),
        "\r\n    ".join(textwrap.wrap(base64.b64encode(b"user:" + LONG.encode()).decode(), 76)),
    ],
)
def test_a_secret_is_masked_when_something_interrupts_it(shown: str) -> None:
    redactor = Redactor(SECRET, LONG)
    masked = redactor.text(f"before {shown} after")
    assert masked.count(MASK) == 1
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    data = f"before {shown} after".encode()
    assert streamed(redactor, data, [1] * len(data)).decode() == masked


def test_secrets_that_overlap_are_masked_as_one() -> None:
    assert Redactor("sesame", "mean").text("sesamean") == MASK


def test_each_line_of_a_long_secret_is_masked() -> None:
    key = "-----BEGIN KEY-----\nAAAABBBBCCCC\nDDDDEEEEFFFF\n-----END KEY-----\n"
    masked = Redactor(key).text("line: AAAABBBBCCCC\nand DDDDEEEEFFFF")
    assert masked == f"line: {MASK}\nand {MASK}"


def test_text_without_secrets_stays() -> None:
    assert Redactor().text("nothing \udcff to hide") == "nothing \udcff to hide"
    assert Redactor("sesame").text("nothing to hide") == "nothing to hide"


def test_secrets_as_short_as_words_are_not_masked() -> None:
    assert Redactor("abc").text("abc") == "abc"


PIECES = [
    *(b"x", b"\n", b"s", b"se", b"sesam", b"sesame", b"sesesame", b"openopen"),
    *(b"\x1b[31m", b"\x1b", b"[3", b"1m", b"\xe2\x80", b"\x8b", b"\0", b"\x1b]0;", b"\x07"),
]


@given(
    st.lists(
        st.sampled_from(PIECES),
        max_size=12,
    ),
    st.lists(st.integers(1, 5), max_size=20),
)
def test_a_secret_split_over_reads_is_masked_as_if_it_came_at_once(
    parts: list[bytes], sizes: list[int]
) -> None:
    redactor = Redactor("sesame", "openopen")
    data = b"".join(parts)
    assert streamed(redactor, data, sizes) == redactor.data(data)


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(1, 5), max_size=60))
def test_a_secret_split_anywhere_is_masked(before: bytes, after: bytes, sizes: list[int]) -> None:
    redactor = Redactor(SECRET)
    out = streamed(redactor, before + SECRET.encode() + after, sizes)
    assert SECRET.encode() not in out


def test_a_stream_holds_back_only_the_beginning_of_a_secret() -> None:
    stream = Redactor("sesame").stream()
    assert stream.feed(b"progress 10%\n") == b"progress 10%\n"
    assert stream.feed(b"ses") == b""
    assert stream.feed(b"sion\n") == b"session\n"


def test_a_secret_added_later_is_masked_in_open_streams() -> None:
    redactor = Redactor()
    stream = redactor.stream()
    assert stream.feed(b"sesame ") == b"sesame "
    redactor.add("sesame")
    assert stream.feed(b"sesame ") == f"{MASK} ".encode()


def test_what_a_stream_holds_back_is_bounded() -> None:
    stream = Redactor("sesame").stream()
    assert stream.feed(b"ses") == b""
    for _ in range(2):
        stream.feed(b"\0" * 40_000)
        assert len(stream._held) < 100_000
    assert stream.feed(b"ame!") == b"***!"


def test_secrets_can_be_added_from_many_threads() -> None:
    redactor = Redactor()
    threads = [threading.Thread(target=redactor.add, args=(f"secret-{n:03d}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert redactor.text(" ".join(f"secret-{n:03d}" for n in range(20))) == " ".join([MASK] * 20)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext\nnext", "plain\ttext\nnext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://evil\x1b\\link", "link"),
        ("a\x08b\x00c\x7f\x9b", "abc"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\x1b", ""),
        ("\x1b[999999999", "[999999999"[:0] + "999999999"),
    ],
)
def test_terminals_see_no_control_bytes(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.text(max_size=80))
def test_nothing_printable_moves_a_cursor(text: str) -> None:
    assert not any(ord(character) < 32 and character not in "\t\n" for character in printable(text))
