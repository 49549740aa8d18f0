"""A process that a benchmark starts: it ends with the block that it serves, however that ends."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import AnyStr

from wattpack.ending import last_step

PATIENCE_SECONDS = 20.0


@contextlib.contextmanager
def kept(
    process: subprocess.Popen[AnyStr], patience_seconds: float = PATIENCE_SECONDS
) -> Iterator[subprocess.Popen[AnyStr]]:
    """Inside it runs; after, it has ended: told, waited for, and killed if it did not listen.

    Who is told twice to end does not wait: the process is killed at once.
    """
    take_back = last_step(process.kill)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_seconds)
        process.kill()
        process.wait()
        take_back()
