"""Reads one YAML file into items, by the rules of YAML 1.2 core and some stricter ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from provision.inventory.core_values import Scalar
from provision.inventory.scalars import near
from provision.inventory.secrets import Secret
from provision.inventory.tree import Item, SourceFile
from provision.values.diagnostics import Diagnostic, Source
from provision.values.read_file import read_limited

REFERENCE = "!secret"
"""The tag of a secret by reference."""
MAX_BYTES = 4 * 1024 * 1024
MAX_WEIGHT = 250_000
MAX_DEPTH = 48
_WORTH = 256

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+").fullmatch
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
).fullmatch
_WORDS = {"true": "bool", "True": "bool", "TRUE": "bool", "false": "bool", "False": "bool", "FALSE": "bool"}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_NUMERIC = frozenset("-+.0123456789")
_VARIABLE = re.compile(r"(\$?)\$\{([^{}\n]{0,200})\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_STR_TAG = "tag:yaml.org,2002:str"

_BEGIN = (
    "begin with a copy of inventories/starter.yaml, or let a host write it: `provision bootstrap root@HOST`"
)
_OPEN_QUOTE = "the quote that begins here is not closed"
_OPEN_BRACKET = "the bracket that begins here is not closed, or a ',' is missing in it"
_PLAIN_WORDS = {
    "mapping values are not allowed": "there is a second ':' here: the line above lacks its ':',"
    " the indentation is wrong, or the value needs quotes",
    "unexpected end of stream": _OPEN_QUOTE,
    "could not find expected ':'": "a key without ':', here or in the line above",
    **dict.fromkeys(
        ("expected key", "expected <block end>", "expected '-' indicator"),
        "this does not fit here: entries of one section begin in the same column,"
        " and nothing follows a closing quote",
    ),
    **dict.fromkeys(("',' or ']'", "',' or '}'"), _OPEN_BRACKET),
    "<document start>": "this is not a line of YAML, which looks like `key: value`",
    "cannot start any token": "a value cannot begin with this character: write it in quotes",
}
"""What the words of libyaml and of PyYAML's own parser mean to a user."""


class Unreadable(Exception):  # noqa: N818 - a verdict, caught by the loader
    """A file that gives no tree; carries its problems."""

    def __init__(self, problems: list[Diagnostic]) -> None:
        super().__init__(problems)
        self.problems = problems


def read_text(path: Path, shown: str, code: str = "INVENTORY_UNREADABLE") -> str:
    """Return a file's text.

    Args:
        path: the file.
        shown: its name as the user typed it.
        code: code of the problem.

    Raises:
        Unreadable: missing, no file, too large, or no UTF-8.
    """

    def fail(summary: str, source: Source | None = None, remedy: str = "") -> Unreadable:
        return Unreadable([Diagnostic(code, f"{shown} {summary}", source=source, remedy=remedy)])

    try:
        data = read_limited(path, MAX_BYTES)
    except IsADirectoryError:
        files = sorted(child.name for child in path.glob("*.y*ml"))[:5]
        remedy = f"name a file in it: {', '.join(files)}" if files else "name a file: FOLDER/site.yaml"
        raise fail("is a folder, not a file", remedy=remedy) from None
    except OSError as error:
        raise fail(f"cannot be read: {(error.strerror or 'unknown reason').lower()}") from None
    except ValueError:
        raise fail("is not a file name") from None
    if len(data) > MAX_BYTES:
        raise fail(f"is larger than {MAX_BYTES // 1048576} MiB: too large for an inventory") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise fail("is not UTF-8 text", Source(shown, line, column)) from None


def read_tree(text: str, name: str, folder: str, environ: Mapping[str, str]) -> tuple[Item, list[Diagnostic]]:
    """Return the tree of a YAML text and the problems that still leave one.

    Args:
        text: content of the file.
        name: its name as the user typed it.
        folder: its folder, for relative paths.
        environ: values for `${NAME}`.

    Raises:
        Unreadable: no tree can be had.
    """
    return _Reader(SourceFile(name, text, folder), environ).read()


class _Open:
    """A collection that has begun: `key` is a mapping's key that still lacks its value."""

    __slots__ = ("anchor", "is_mapping", "item", "key", "tag")

    def __init__(self, item: Item, is_mapping: bool, anchor: str | None, tag: str | None) -> None:
        self.item = item
        self.is_mapping = is_mapping
        self.anchor = anchor
        self.tag = tag
        self.key: tuple[str, int, int] | None = None

    @property
    def wants_key(self) -> bool:
        """Whether the next value is a key."""
        return self.is_mapping and self.key is None


class _Reader:
    def __init__(self, file: SourceFile, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.problems: list[Diagnostic] = []
        self.anchors: dict[str, Item | None] = {}
        self.weight = 0
        self.spans: list[tuple[int, int]] = []

    def problem(self, code: str, summary: str, source: Source | None, remedy: str = "") -> Diagnostic:
        diagnostic = Diagnostic(code, summary, source=source, remedy=remedy)
        self.problems.append(diagnostic)
        return diagnostic

    def stop(self, code: str, summary: str, source: Source | None, remedy: str = "") -> Unreadable:
        self.problem(code, summary, source, remedy)
        return Unreadable(self.problems)

    def read(self) -> tuple[Item, list[Diagnostic]]:
        try:
            root = self._compose()
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except yaml.YAMLError as error:
            raise self._characters(error) from None
        self._tabs()
        if root is None or root.value is None:
            raise self.stop("INVENTORY_EMPTY", f"{self.file.name} is empty: it has no keys", None, _BEGIN)
        if not isinstance(root.value, dict):
            found = "a list" if isinstance(root.value, list) else "plain text"
            summary = f"an inventory is a mapping of keys to values, found {found}"
            raise self.stop("INVENTORY_SHAPE", summary, root.source(), _BEGIN)
        return root, self.problems

    def _syntax(self, error: yaml.MarkedYAMLError) -> Unreadable:
        problem = error.problem or error.context or ""
        mark = error.problem_mark or error.context_mark
        words = next((words for part, words in _PLAIN_WORDS.items() if part in problem), problem)
        if words in (_OPEN_QUOTE, _OPEN_BRACKET):
            mark = error.context_mark or mark
        source = self.file.source(mark.line, mark.column) if mark is not None else None
        if source is not None and "\t" in source.text:
            column = source.text.index("\t")
            source = Source(source.file, source.line, column + 1, source.text)
            return self.stop("INVENTORY_TAB", "tabs cannot indent YAML: use spaces", source)
        remedy = 'write "${NAME}" in quotes inside { } and [ ]' if source and "${" in source.text else ""
        return self.stop("INVENTORY_SYNTAX", f"invalid YAML: {words}", source, remedy)

    def _characters(self, error: yaml.YAMLError) -> Unreadable:
        match = re.search(
            "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", self.file.text
        )
        if match is None:
            return self.stop("INVENTORY_SYNTAX", f"invalid YAML: {str(error)[:100]}", None)
        before = self.file.text[: match.start()]
        line = before.count("\n")
        source = Source(self.file.name, line + 1, len(before) - (before.rfind("\n") + 1) + 1)
        return self.stop("INVENTORY_SYNTAX", f"the character {match[0]!r} is not allowed", source)

    def _tabs(self) -> None:
        if "\t" not in self.file.text:
            return
        inside = {line for first, last in self.spans for line in range(first + 1, last + 1)}
        for number, line in enumerate(self.file.lines):
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            if "\t" in indent and number not in inside:
                source = self.file.source(number, indent.index("\t"))
                self.problem("INVENTORY_TAB", "tabs cannot indent YAML: use spaces", source)

    def _compose(self) -> Item | None:  # noqa: C901 - one branch an event
        """Build the tree from events; one entry of `stack` is an open collection."""
        next_event = _parser(self.file.text).get_event
        root: Item | None = None
        stack: list[_Open] = []
        documents = 0
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                item = self._scalar(event)
                if stack and stack[-1].wants_key:
                    mark = event.start_mark
                    stack[-1].key = (event.value, mark.line, mark.column)
                    continue
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                stack.append(self._opened(event, stack))
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                item = self._closed(stack.pop())
            elif kind is yaml.AliasEvent:
                item = self._alias(event.anchor, event.start_mark)
                if stack and stack[-1].wants_key:
                    raise self._no_key(event)
            elif kind is yaml.StreamEndEvent:
                return root
            else:
                documents += kind is yaml.DocumentStartEvent
                if documents > 1:
                    source = self._at(event.start_mark, 3)
                    self.problem(
                        "INVENTORY_DOCUMENTS",
                        "an inventory is one document: `---` starts a second one",
                        source,
                    )
                    return root
                continue
            if stack:
                self._enter(stack[-1], item)
            else:
                root = item

    def _at(self, mark: Any, width: int = 1) -> Source:
        return self.file.source(mark.line, mark.column, width)

    def _no_key(self, event: Any) -> Unreadable:
        return self.stop("INVENTORY_KEY", "a key must be plain text", self._at(event.start_mark))

    def _opened(self, event: Any, stack: list[_Open]) -> _Open:
        if stack and stack[-1].wants_key:
            raise self._no_key(event)
        mark = event.start_mark
        if len(stack) >= MAX_DEPTH:
            raise self.stop("INVENTORY_TOO_DEEP", f"more than {MAX_DEPTH} levels of nesting", self._at(mark))
        self._weigh(1, mark)
        is_mapping = type(event) is yaml.MappingStartEvent
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        item = Item({} if is_mapping else [], self.file, mark.line, mark.column)
        return _Open(item, is_mapping, event.anchor, event.tag)

    def _closed(self, opened: _Open) -> Item:
        if opened.tag is not None:
            self._tagged(opened.item, opened.tag)
        if opened.anchor is not None:
            self.anchors[opened.anchor] = opened.item
        return opened.item

    def _enter(self, opened: _Open, item: Item) -> None:
        holder = opened.item
        holder.weight += item.weight
        if isinstance(holder.value, list):
            holder.value.append(item)
            return
        assert isinstance(holder.value, dict)  # noqa: S101 - tags are looked at when it closes
        assert opened.key is not None  # noqa: S101 - the caller takes a key first
        name, line, column = opened.key
        opened.key = None
        if name in holder.value:
            first = holder.keys[name][1] + 1
            source = self.file.source(line, column, len(name))
            summary = f"duplicate key {name[:80]!r} (first defined on line {first})"
            self.problem("INVENTORY_DUPLICATE_KEY", summary, source)
            return
        holder.value[name] = item
        holder.keys[name] = (self.file, line, column)

    def _weigh(self, weight: int, mark: Any) -> None:
        self.weight += weight
        if self.weight > MAX_WEIGHT:
            source = self.file.source(mark.line, mark.column)
            raise self.stop(
                "INVENTORY_TOO_LARGE", f"more than {MAX_WEIGHT} values (with aliases expanded)", source
            )

    def _alias(self, name: str, mark: Any) -> Item:
        item = self.anchors.get(name)
        source = self.file.source(mark.line, mark.column, len(name) + 1)
        if name not in self.anchors:
            raise self.stop("INVENTORY_ALIAS", f"unknown anchor &{name[:80]}", source)
        if item is None:
            raise self.stop("INVENTORY_ALIAS", f"the alias *{name[:80]} refers to itself", source)
        self._weigh(item.weight, mark)
        return item

    def _scalar(self, event: Any) -> Item:
        text: str = event.value
        mark, end = event.start_mark, event.end_mark
        one_line = end.line == mark.line
        if not one_line:
            self.spans.append((mark.line, end.line))
        width = end.column - mark.column if one_line else 1
        item = self._made(event, text, mark, width)
        if event.anchor is not None:
            self.anchors[event.anchor] = item
        return item

    def _made(self, event: Any, text: str, mark: Any, width: int) -> Item:
        weight = 1 + len(text) // _WORTH
        self._weigh(weight, mark)
        plain = not event.style
        tag = event.tag
        if tag is not None and tag not in ("!", _STR_TAG):
            source = self._at(mark, width)
            if tag == REFERENCE:
                self.problem("INVENTORY_SECRET", "write !secret { env | file | command: ... }", source)
            else:
                self.problem("INVENTORY_TAG", f"unknown tag {tag[:80]}{near(tag, [REFERENCE])}", source)
        if "${" in text and event.style not in ("|", ">"):
            # Quotes are only there for the braces of `{ cores: "${CORES}" }`: the value has its own type.
            plain = plain or _VARIABLE.fullmatch(text) is not None
            text = self._expanded(text, mark, width)
        if plain and tag is None:
            core = _core(text)
            if core is None:
                return Item(None, self.file, mark.line, mark.column, width, weight)
        else:
            core = "str"
        scalar = Scalar(text)
        scalar.core = core
        scalar.folder = self.file.folder
        return Item(scalar, self.file, mark.line, mark.column, width, weight)

    def _expanded(self, text: str, mark: Any, width: int) -> str:
        def value_of(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            value = self.environ.get(match[2])
            if value is not None:
                return value
            source = self.file.source(mark.line, mark.column, width)
            if _NAME(match[2]) is None:
                summary = f"{match[0]!r} is not a variable; write $${{ for the text ${{"
            else:
                summary = f"the variable {match[2]} is not set"
            self.problem("INVENTORY_VARIABLE", summary, source, "set it, and run the command again")
            return match[0]

        return _VARIABLE.sub(value_of, text)

    def _tagged(self, item: Item, tag: str) -> None:
        if tag == REFERENCE:
            item.value = self._secret(item)
        elif tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"):
            self.problem("INVENTORY_TAG", f"unknown tag {tag[:80]}{near(tag, [REFERENCE])}", item.source())

    def _secret(self, item: Item) -> Secret | None:
        source = item.source()
        body = item.plain()
        if not isinstance(body, dict) or len(body) != 1 or not body.keys() <= {"env", "file", "command"}:
            self.problem("INVENTORY_SECRET", "write !secret with one of env, file or command", source)
            return None
        kind, reference = next(iter(body.items()))
        words = reference if isinstance(reference, list) else [reference]
        if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
            self.problem("INVENTORY_SECRET", f"!secret needs text for {kind}", source)
            return None
        if (kind == "command") != isinstance(reference, list):
            expected = "a list of words" if kind == "command" else "one text"
            self.problem("INVENTORY_SECRET", f"!secret needs {expected} for {kind}", source)
            return None
        plain = tuple(str.__str__(word) for word in words)
        if kind == "file":
            try:
                path = Path(plain[0]).expanduser()
            except RuntimeError:
                self.problem(
                    "INVENTORY_SECRET", f"{plain[0][:80]!r}: this home folder does not exist", source
                )
                return None
            plain = (str(Path(self.file.folder) / path),)
        return Secret(kind, plain, replace(source, width=len(REFERENCE)))


def _core(text: str) -> str | None:
    """Return the type of a plain scalar by YAML 1.2 core; None for null."""
    if text in _NULLS:
        return None
    if text[0] in _NUMERIC:
        if _INT(text) is not None:
            return "int"
        return "float" if _FLOAT(text) is not None else "str"
    return _WORDS.get(text, "str")


class _PurePython(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's own parser, where libyaml is missing."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def _parser(text: str) -> Any:
    """Return libyaml's parser, else PyYAML's own; both give the same events."""
    try:
        from yaml._yaml import CParser  # noqa: PLC0415 - PyYAML may be built without libyaml
    except ImportError:
        return _PurePython(text)
    return CParser(text)
