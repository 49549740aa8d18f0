"""The one logger set-up: JSON lines for log collectors, plain lines for a person at a terminal.

A module that logs has one logger, after itself and under one name everywhere:
``log = logging.getLogger(__name__)``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
#: Read where no ``--log-level`` is given; the chart sets it for every process.
LEVEL_VARIABLE = "WATTPACK_LOG_LEVEL"


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "message"}``, and ``exception`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line without line breaks inside."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Give a command the flag ``--log-level``."""
    default = os.environ.get(LEVEL_VARIABLE, "info")
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default=default if default in LEVELS else "info",
        help=f"least severity that is logged (default: ${LEVEL_VARIABLE}, else info)",
    )


def log_json(level: str = "info", stream: TextIO | None = None) -> None:
    """The root logger writes JSON lines to standard error, unless something was set up before."""
    _set_up(level, JsonFormatter(), stream)


def log_plain(level: str = "info", stream: TextIO | None = None) -> None:
    """The root logger writes ``LEVEL logger: message`` to standard error, for people."""
    _set_up(level, logging.Formatter("%(levelname)s %(name)s: %(message)s"), stream)


def _set_up(level: str, formatter: logging.Formatter, stream: TextIO | None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
