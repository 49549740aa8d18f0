"""Log lines as collectors read them."""

from __future__ import annotations

import io
import json
import logging

from wattpack.logs import JsonFormatter


def written(message: str, *arguments: object, error: Exception | None = None) -> list[str]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("part")
    logger.addHandler(handler)
    logger.error(message, *arguments, exc_info=error)
    return stream.getvalue().splitlines()


def test_a_record_is_one_line_whatever_it_holds() -> None:
    (line,) = written('two\nlines and "%s"', "ß")
    parsed = json.loads(line)
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {"level": "error", "logger": "part", "message": 'two\nlines and "ß"'}


def test_an_exception_stays_in_the_line_of_its_message() -> None:
    (line,) = written("failed", error=ValueError("why"))
    assert "ValueError: why" in json.loads(line)["exception"]
