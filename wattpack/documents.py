"""YAML and JSON files that people write, read in one way: strictly, and within bounds.

What a plain parser lets pass silently or dies of is refused by name: a key that is there twice (the
last one would win unseen), nesting that would end in a recursion error, a file that fills memory,
and YAML aliases, by which ten lines stand for a thousand million.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor

from wattpack.errors import InputError

__all__ = ["parse_json", "parse_yaml", "read_json", "read_text", "read_yaml"]

#: A snapshot of 10,000 GPUs is 20 MB; settings and scenarios are some kB.
MAX_FILE_BYTES = 64 * 1024 * 1024
#: The deepest file of ours (a scenario's faults) has 4 levels.
MAX_DEPTH = 64
#: For the next bytes of a pipe; nobody may ever write to it.
PIPE_SECONDS = 10.0
#: What Python reads (CVE-2020-10735); its own advice is for programmers. 64 bits have 20.
MAX_DIGITS = 4300


class _DeepError(ValueError):
    """The document nests further than ``MAX_DEPTH``."""


class _LongError(ValueError):
    """A whole number has more than ``MAX_DIGITS`` digits."""


class _TwiceError(ValueError):
    """A key is there twice in one mapping."""


def read_yaml(file: Path) -> object:
    """The file's single YAML document, None for an empty file.

    Raises:
        InputError: naming what was refused, with its line.
    """
    return parse_yaml(read_text(file), str(file))


def read_json(file: Path) -> object:
    """The file's JSON document.

    Raises:
        InputError: naming what was refused.
    """
    return parse_json(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The file as text.

    Raises:
        InputError: if it is missing, too large, not UTF-8, or a pipe to which nobody writes.
    """
    try:
        data = _data(file)
        if len(data) > MAX_FILE_BYTES:
            raise InputError("file", f"at most {MAX_FILE_BYTES} bytes", "more", str(file))
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("file", "a readable UTF-8 file", str(error), str(file)) from error


def _data(file: Path) -> bytes:
    """What is in the file, a byte more than the most at most."""
    # Otherwise opening a pipe waits until somebody opens its other end.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as stream:
        some = select.poll()
        some.register(stream, select.POLLIN)
        data = bytearray()
        while len(data) <= MAX_FILE_BYTES:
            if not some.poll(1000.0 * PIPE_SECONDS):
                raise TimeoutError(f"a pipe without a byte for {PIPE_SECONDS:g} s")
            read = stream.read(MAX_FILE_BYTES + 1 - len(data))
            if not read:
                break
            data += read
        return bytes(data)


def parse_yaml(text: str, source: str = "") -> object:
    """The document in the text.

    Raises:
        InputError: for anything but one plain YAML document of at most 64 levels.
    """
    try:
        document = _loaded(text)
    # PyYAML makes characters of numbers that C has no room for.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _refusal("YAML", error, source) from error
    return document


def parse_json(text: str, source: str = "") -> object:
    """The document in the text; NaN and infinities are left to the model that takes the values.

    Raises:
        InputError: for anything but one JSON document of at most 64 levels.
    """
    try:
        document: object = json.loads(text, object_pairs_hook=_unique)
        _check_depth(document)
    except RecursionError as error:
        raise _refusal("JSON", _DeepError(), source) from error
    except ValueError as error:
        if long := _long_number(text):
            raise _refusal("JSON", long, source) from error
        if not text.strip():
            raise InputError("file", "a JSON document", "an empty text", source) from error
        if text.lstrip()[0] not in '{["':
            # Whoever knows Kubernetes writes YAML.
            expected = "a JSON document (YAML is not read here)"
            raise InputError("file", expected, str(error), source) from error
        raise _refusal("JSON", error, source) from error
    return document


def _long_number(text: str) -> _LongError | None:
    """What is wrong with a document that is JSON but for a number that Python does not read."""
    long: list[_Digits] = []

    def kept(digits: str) -> int | _Digits:
        if len(digits) <= MAX_DIGITS:
            return int(digits)
        long.append(_Digits(len(digits)))
        return long[-1]

    try:
        document: object = json.loads(text, parse_int=kept)
    except (ValueError, RecursionError):
        return None
    return _LongError(_path(document, long[0]), f"{long[0].count:,}") if long else None


class _Digits:
    """In the place of a number.

    Args:
        count: How many digits it has.
    """

    def __init__(self, count: int) -> None:
        self.count = count


def _path(document: object, wanted: _Digits) -> str:
    """Where it stands, with dots; level by level, for a document may be deep."""
    level: list[tuple[str, object]] = [("", document)]
    while level:
        for path, value in level:
            if value is wanted:
                return path or "file"
        level = [
            (f"{path}.{key}".lstrip("."), child)
            for path, value in level
            if isinstance(value, dict | list)
            for key, child in (value.items() if isinstance(value, dict) else enumerate(value))
        ]
    return "file"


def _refusal(language: str, error: Exception, source: str) -> InputError:
    if isinstance(error, _TwiceError):
        key, where = error.args
        return InputError(key, "each key once", f"the key again{where}", source)
    if isinstance(error, _DeepError):
        return InputError("file", f"at most {MAX_DEPTH} levels", "deeper nesting", source)
    if isinstance(error, _LongError):
        return InputError(error.args[0], f"at most {MAX_DIGITS} digits", error.args[1], source)
    return InputError("file", f"valid {language}", str(error), source)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(n for i, n in enumerate(names) if n in names[:i]), "")
    return found


def _check_depth(document: object) -> None:
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _DeepError
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]


class _Bounds(Composer, SafeConstructor):
    """What is refused beside what is no YAML.

    Nodes are composed here also where C parses: libyaml's binding recurses there without a bound,
    so that 100,000 open brackets would end the process.
    """

    def _begin(self) -> None:
        Composer.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        """As usual, within the depth and without aliases."""
        if self.check_event(yaml.AliasEvent):  # type: ignore[attr-defined]
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            raise yaml.YAMLError(f"an alias in line {mark.line + 1}: write its value out")
        if self._depth >= MAX_DEPTH:
            raise _DeepError
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As usual, with each key once."""
        seen = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                where = f" in line {key.start_mark.line + 1}"
                raise _TwiceError(str(key.value), where)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """As usual, where a machine's integers have that many digits."""
        if len(node.value) > MAX_DIGITS:
            where = f"line {node.start_mark.line + 1}"
            raise _LongError(where, f"{len(node.value):,}")
        return super().construct_yaml_int(node)

    yaml_constructors = SafeConstructor.yaml_constructors | {
        "tag:yaml.org,2002:int": construct_yaml_int
    }


class _Loader(_Bounds, yaml.SafeLoader):
    """In Python: what it says of a wrong text shows the place."""

    def __init__(self, stream: str) -> None:
        yaml.SafeLoader.__init__(self, stream)
        self._begin()


class _FastLoader(_Bounds, yaml.CSafeLoader):
    """Scanned and parsed in C."""

    def __init__(self, stream: str) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        self._begin()


def _loaded(text: str) -> object:
    """Read in C, three times as fast; what it refuses Python judges, and says where.

    C takes tabs between a key and its value, which Python refuses: those are Python's, too.
    """
    if "\t" not in text:
        with contextlib.suppress(yaml.YAMLError, ValueError):
            return yaml.load(text, Loader=_FastLoader)
    return yaml.load(text, Loader=_Loader)
