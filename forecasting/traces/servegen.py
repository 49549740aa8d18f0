"""ServeGen's data folders: rates and token lengths of anonymous clients of one model.

``chunk-K-trace.csv`` has no header and a row a window: start (s), requests per second, coefficient
of variation, family and two parameters of the gaps. ``chunk-K-dataset.json`` has, by start of a
window of six hours, ``input_tokens`` and ``output_tokens`` as text ``{length: probability}``. Time
0 is midnight. Source: alibaba/ServeGen, README, and the files of ``data/`` (read at f891d11).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np

from forecasting.files.text_lines import Progress, text_lines
from forecasting.series_source import MAX_BINS, Floats
from forecasting.traces.length_histogram import LengthHistogram
from forecasting.traces.trace_bins import token_lengths
from forecasting.traces.trace_requests import MAX_CLIENTS, MAX_TOKENS
from forecasting.traces.trace_series import Direction, TokenLengths, TraceSeries
from wattpack.documents import read_text
from wattpack.errors import InputError

_CHUNK: Final = re.compile(r"chunk-(\d{1,6})-trace\.csv(\.gz)?")
_NUMBER: Final = r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?"
_PAIR: Final = re.compile(rf"\s*({_NUMBER})\s*:\s*({_NUMBER})\s*")
_LAST_SECONDS: Final = 3.2e9


def read_servegen(folder: Path, step_seconds: int, progress: Progress | None = None) -> TraceSeries:
    """The clients of a folder; one without token lengths has rates alone.

    Args:
        folder: For example ``data/language/m-large``.
        step_seconds: Width of a bin: a multiple or a part of the files' (600 s).
        progress: Told the share of clients that were read.

    Raises:
        InputError: naming the file and the line.
    """
    files = _traces(folder)
    rates: dict[str, tuple[int, int, Floats]] = {}
    lengths: list[TokenLengths] = []
    every: dict[tuple[Direction, int, int], LengthHistogram] = defaultdict(LengthHistogram)
    for done, (client, file) in enumerate(files, start=1):
        rates[client] = _rates(file)
        dataset = folder / f"chunk-{client[1:]}-dataset.json"
        for one, histogram in _lengths(dataset, client) if dataset.exists() else ():
            lengths.append(one)
            requests = _requests(rates[client], one)
            if requests > 0:
                window = (one.direction, one.start_seconds, one.window_seconds)
                every[window].add(histogram[0], histogram[1] * requests / one.weight)
        if progress is not None:
            progress(done / len(files))
    start, width, table = _grid(rates, str(folder))
    tokens = {}
    for direction in ("input", "output"):
        means = _means(lengths, direction, list(rates), start, width, table.shape[1])
        tokens[direction] = np.where(table > 0, table * means, 0.0)
    series = TraceSeries(
        tuple(rates), start, width, table, tokens["input"], tokens["output"], tuple(lengths),
        is_relative=True, total_lengths=tuple(_totals(every)),
    )  # fmt: skip
    return _regridded(series, step_seconds)


def _traces(folder: Path) -> list[tuple[str, Path]]:
    """Clients and their files, by number."""
    if not folder.is_dir():
        raise InputError("file", "a folder with chunk-K-trace.csv files", str(folder))
    found = sorted(
        (int(match[1]), file)
        for file in folder.iterdir()
        if (match := _CHUNK.fullmatch(file.name)) is not None
    )
    if not 1 <= len(found) <= MAX_CLIENTS:
        expected = f"1 to {MAX_CLIENTS} files chunk-K-trace.csv"
        raise InputError("file", expected, len(found), str(folder))
    return [(f"c{number}", file) for number, file in found]


def _rates(file: Path) -> tuple[int, int, Floats]:
    """Start, width and requests per second of a client's windows."""
    with closing(text_lines(file)) as lines:
        rows = [_row(line, number, file) for number, line in enumerate(lines, start=1) if line]
    starts = np.array([start for start, _ in rows])
    if len(rows) < 2 or len(rows) > MAX_BINS:
        raise InputError("file", f"2 to {MAX_BINS} windows", len(rows), str(file))
    widths = np.diff(starts)
    if np.any(widths != widths[0]) or widths[0] < 1:
        raise InputError("file", "windows of one width, one after the other", "others", str(file))
    return int(starts[0]), int(widths[0]), np.array([rate for _, rate in rows])


def _row(line: str, number: int, file: Path) -> tuple[float, float]:
    cells = line.split(",")
    values = [
        float(cell) if re.fullmatch(_NUMBER, cell.strip(), re.ASCII) else np.nan
        for cell in cells[:2]
    ]
    fits = len(cells) == 6 and values[0] <= _LAST_SECONDS and values[1] <= 1e9
    if not fits or values[0] != int(values[0]):
        expected = "start in whole seconds, requests per second and four more cells"
        raise InputError(f"line {number}", expected, line, str(file))
    return values[0], values[1]


def _grid(rates: dict[str, tuple[int, int, Floats]], source: str) -> tuple[int, int, Floats]:
    """All clients on one grid; who is not there asks nothing."""
    widths = {width for _, width, _ in rates.values()}
    if len(widths) > 1 or any(start % min(widths) for start, _, _ in rates.values()):
        raise InputError("file", "clients with windows on one grid", sorted(widths), source)
    (width,) = widths
    first = min(start for start, _, _ in rates.values())
    last = max(start + width * len(row) for start, _, row in rates.values())
    n_bins = (last - first) // width
    if n_bins > MAX_BINS:
        raise InputError("file", f"at most {MAX_BINS} windows", n_bins, source)
    table = np.zeros((len(rates), n_bins))
    for i, (start, _, row) in enumerate(rates.values()):
        begin = (start - first) // width
        table[i, begin : begin + len(row)] = row
    return first, width, table


def _requests(rates: tuple[int, int, Floats], window: TokenLengths) -> float:
    """Of one client in a window: what its lengths weigh among those of all."""
    start, width, row = rates
    begin = max(0, (window.start_seconds - start) // width)
    end = max(0, (window.start_seconds + window.window_seconds - start) // width)
    return float(row[begin:end].sum()) * width


def _totals(
    every: Mapping[tuple[Direction, int, int], LengthHistogram],
) -> Iterator[TokenLengths]:
    """Lengths of all clients together, by direction and window."""
    for (direction, start, width), histogram in sorted(every.items(), key=lambda kept: kept[0]):
        yield token_lengths("all", direction, start, width, *histogram.merged())


def _lengths(file: Path, client: str) -> Iterator[tuple[TokenLengths, tuple[Floats, Floats]]]:
    """Statistics of a client's windows with their histograms; one without requests has none."""
    windows = _windows(file)
    starts = sorted(windows)
    widths = np.diff(starts)
    width = int(widths.min()) if len(widths) else 21_600
    for start in starts:
        for direction in ("input", "output"):
            told = windows[start].get(f"{direction}_tokens")
            found = _histogram(told, f"{start}.{direction}_tokens", file)
            if found is not None:
                kind: Direction = "input" if direction == "input" else "output"
                yield token_lengths(client, kind, start, width, *found), found


def _windows(file: Path) -> dict[int, dict[str, Any]]:
    try:
        body = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError("file", "a JSON object", str(error)[:100], str(file)) from error
    windows = {}
    for key, window in body.items() if isinstance(body, dict) else ():
        if not key.isascii() or not key.isdigit() or len(key) > 10 or not isinstance(window, dict):
            raise InputError(f"{key[:20]}", "an object by its start in seconds", window, str(file))
        windows[int(key)] = window
    if not windows:
        raise InputError("file", "an object of windows", type(body).__name__, str(file))
    return windows


def _histogram(told: object, field: str, file: Path) -> tuple[Floats, Floats] | None:
    """Lengths, ascending, and their probabilities; None where nothing came."""
    if told is None:
        return None
    text = told.strip() if isinstance(told, str) else ""
    if not (text.startswith("{") and text.endswith("}")):
        raise InputError(field, "text like {12: 0.5, 40: 0.5}", told, str(file))
    pairs = []
    for part in filter(str.strip, text[1:-1].split(",")):
        pair = _PAIR.fullmatch(part)
        if pair is None or float(pair[1]) > MAX_TOKENS or float(pair[2]) > 1:
            raise InputError(field, f"a length up to {MAX_TOKENS} and its share", part, str(file))
        pairs.append((float(pair[1]), float(pair[2])))
    pairs.sort()
    lengths, weights = np.array(pairs).reshape(-1, 2).T
    return (lengths, weights) if weights.sum() > 0 else None


def _means(
    lengths: list[TokenLengths],
    direction: str,
    clients: list[str],
    start: int,
    width: int,
    n_bins: int,
) -> Floats:
    """Mean tokens of each client's requests in each bin, NaN where nobody told, (n, n_bins)."""
    table = np.full((len(clients), n_bins), np.nan)
    places = {client: i for i, client in enumerate(clients)}
    for one in lengths:
        if one.direction == direction:
            begin = (one.start_seconds - start) // width
            end = (one.start_seconds + one.window_seconds - start) // width
            table[places[one.client], max(0, begin) : max(0, end)] = one.mean
    return table


def _regridded(series: TraceSeries, step_seconds: int) -> TraceSeries:
    """The same rates in wider or narrower bins; a last bin that is not full is left out."""
    width = series.step_seconds
    if step_seconds == width:
        return series
    if step_seconds % width and width % step_seconds:
        raise InputError("stepSeconds", f"a multiple or a part of {width} s", step_seconds)
    if step_seconds > width:
        skipped = -(series.start_seconds // -step_seconds) * step_seconds - series.start_seconds
        each, begin = step_seconds // width, skipped // width
        count = (series.n_bins - begin) // each
        start = series.start_seconds + skipped

        def changed(table: Floats) -> Floats:
            kept = table[:, begin : begin + count * each]
            means: Floats = kept.reshape(len(table), count, each).mean(axis=2)
            return means
    else:
        start = series.start_seconds

        def changed(table: Floats) -> Floats:
            return np.repeat(table, width // step_seconds, axis=1)

    return TraceSeries(
        series.clients, start, step_seconds, changed(series.requests_per_second),
        changed(series.input_tokens_per_second), changed(series.output_tokens_per_second),
        series.lengths, is_relative=True, total_lengths=series.total_lengths,
    )  # fmt: skip
