"""Logs of processes on a cluster: one JSON object a line, as log collectors read them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO


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


def log_json(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """The root logger writes JSON lines to standard error, unless something was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])
