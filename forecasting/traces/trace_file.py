"""Which reader a trace needs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

from forecasting.files.text_lines import Progress
from forecasting.series_source import BIN_SECONDS
from forecasting.traces.azure import azure_requests
from forecasting.traces.burst_gpt import burst_gpt_requests
from forecasting.traces.mooncake import mooncake_requests
from forecasting.traces.servegen import read_servegen
from forecasting.traces.trace_bins import TraceBins
from forecasting.traces.trace_requests import ClientNames, Request, batches
from forecasting.traces.trace_series import WINDOW_SECONDS, TraceSeries

TraceFormat = Literal["azure", "burstgpt", "mooncake", "servegen"]
FORMATS: Final[tuple[TraceFormat, ...]] = ("azure", "burstgpt", "mooncake", "servegen")

_Reader = Callable[[Path, ClientNames, Progress | None], Generator[Request, None, None]]
_READERS: Final[Mapping[str, _Reader]] = {
    "azure": azure_requests,
    "burstgpt": burst_gpt_requests,
    "mooncake": mooncake_requests,
}


def read_trace(
    file: Path,
    format: TraceFormat,
    step_seconds: int = BIN_SECONDS,
    progress: Progress | None = None,
) -> TraceSeries:
    """Rates and token lengths of a trace.

    Args:
        file: A file, plain or gzip; of ServeGen a folder of one model.
        format: Who wrote it.
        step_seconds: Width of a bin.
        progress: Told how far it is.

    Raises:
        InputError: naming the line; nothing of a damaged trace is used.
    """
    if format == "servegen":
        return read_servegen(file, step_seconds, progress)
    clients = ClientNames(str(file))
    bins = TraceBins(step_seconds, WINDOW_SECONDS, str(file))
    with closing(_READERS[format](file, clients, progress)) as requests:
        for batch in batches(requests):
            bins.add(batch)
    return bins.series(clients.all(), is_relative=format != "azure")
