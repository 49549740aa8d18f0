"""A bar on stderr while a question is answered, gone when the answer is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Tell = Callable[[int, int], None]
"""How many are done, and of how many."""


@contextmanager
def progress_bar(description: str) -> Iterator[Tell]:
    """Yields what to tell the bar; nothing is drawn where stderr is no terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
