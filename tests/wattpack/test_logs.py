"""Log lines as collectors read them."""

from __future__ import annotations

import argparse
import io
import json
import logging

import pytest

from wattpack.logs import JsonFormatter, add_log_level


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


def test_every_process_takes_a_log_level_and_the_environment_gives_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WATTPACK_LOG_LEVEL", "warning")
    parser = argparse.ArgumentParser()
    add_log_level(parser)
    assert parser.parse_args([]).log_level == "warning"
    assert parser.parse_args(["--log-level", "debug"]).log_level == "debug"


def test_a_level_that_does_not_exist_is_refused_by_the_flag_s_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTPACK_LOG_LEVEL", "chatty")
    parser = argparse.ArgumentParser()
    add_log_level(parser)
    assert parser.parse_args([]).log_level == "info"
    with pytest.raises(SystemExit):
        parser.parse_args(["--log-level", "chatty"])
    assert "--log-level" in capsys.readouterr().err
