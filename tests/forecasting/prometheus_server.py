"""A real Prometheus over given samples; tests skip where it is not installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def serving(folder: Path, open_metrics: str, *flags: str) -> Iterator[str]:
    """The address of a Prometheus that knows these samples (OpenMetrics text with times)."""
    binary, tool = shutil.which("prometheus"), shutil.which("promtool")
    if binary is None or tool is None:
        pytest.skip("prometheus is not installed")
    text, data, config = folder / "in.txt", folder / "data", folder / "p.yml"
    text.write_text(open_metrics, encoding="utf-8")
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        check=True, capture_output=True,
    )  # fmt: skip
    config.write_text("{}\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [binary, f"--config.file={config}", f"--storage.tsdb.path={data}",
         "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", *flags],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if "ready to receive" in line:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.stderr.close()
        server.wait()
