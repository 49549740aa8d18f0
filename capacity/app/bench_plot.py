"""``wattpack bench plot``: pictures of measured rows (needs matplotlib, a development package)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from capacity.bench.cap_curves import CapCurve, cap_curves
from capacity.bench.measurement_row import MeasurementRow, read_rows
from capacity.roofs import Roofs, find_roofs
from wattpack.errors import InputError, PermanentError

COLOURS: Final = {
    "gemm": "#30638e",
    "attention_prefill": "#d1495b",
    "attention_decode": "#00798c",
    "bandwidth": "#edae49",
    "step_prefill": "#7b2d43",
    "step_decode": "#003d46",
}
STREAM_INTENSITY: Final = 0.05
"""Where streams are drawn: they count no operations."""


def plot(args: argparse.Namespace) -> int:
    """Write ``roofline.png``, ``power.png`` and, where one is known, ``cap-curve.png``.

    Raises:
        InputError: for rows that cannot be read or hold nothing to draw.
        PermanentError: without matplotlib.
    """
    rows = [row for file in args.rows for row in read_rows(file)]
    drawn = [row for row in rows if row.kernel.kernel_class in COLOURS]
    if not drawn:
        raise InputError("rows", f"some of {', '.join(COLOURS)}", len(rows))
    pyplot = _pyplot()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--out", "a folder that can be written", str(args.out)) from error
    pictures = {"roofline.png": _roofline, "power.png": _power}
    for name, draw in pictures.items():
        print(_saved(pyplot, draw, drawn, args.out / name))
    curves = cap_curves(rows)
    if curves:
        print(_cap_picture(pyplot, rows[0], curves, args.out / "cap-curve.png"))
    else:
        print("no cap curve: no rows under caps, and no shipped profile of this type")
    return 0


def _pyplot() -> Any:  # noqa: ANN401 - matplotlib has no types here
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PermanentError(
            "plots need matplotlib, which is a development package: pip install matplotlib"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _saved(
    pyplot: Any,  # noqa: ANN401
    draw: Callable[[Any, Sequence[MeasurementRow]], None],
    rows: Sequence[MeasurementRow],
    file: Path,
) -> Path:
    figure, axis = pyplot.subplots(figsize=(9, 5.5))
    draw(axis, rows)
    who = rows[0].identity
    axis.set_title(f"{who.gpu_product}, limit {who.power_limit_watts:g} W, {len(rows)} rows")
    axis.set_xscale("log")
    axis.set_xlabel("operations per byte of the algorithm")
    axis.grid(alpha=0.3, which="both", lw=0.4)
    axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    pyplot.close(figure)
    return file


def _cap_picture(
    pyplot: Any,  # noqa: ANN401
    row: MeasurementRow,
    curves: Sequence[CapCurve],
    file: Path,
) -> Path:
    """Speed over cap; the labels say whether it was measured here."""
    figure, axis = pyplot.subplots(figsize=(9, 5.5))
    for curve in curves:
        axis.plot(curve.caps_watts, curve.speeds, "o-", ms=4, label=curve.label)
    axis.set_title(f"{row.identity.gpu_product}: speed under a power cap")
    axis.set_xlabel("cap, W")
    axis.set_ylabel("speed over that at the highest cap")
    axis.set_ylim(0, 1.05)
    axis.grid(alpha=0.3, lw=0.4)
    axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    pyplot.close(figure)
    return file


def _roofline(axis: Any, rows: Sequence[MeasurementRow]) -> None:  # noqa: ANN401
    """Operations a second over intensity, below the datasheet's roofs."""
    roofs = find_roofs(rows[0].identity.gpu_product)
    counted = [row for row in rows if row.kernel.flops]
    for name, colour in COLOURS.items():
        for narrow in (False, True):
            own = [
                row for row in counted
                if row.kernel.kernel_class == name and _is_fp8(row) is narrow
            ]  # fmt: skip
            rates = [row.kernel.flops / row.latency.median_seconds / 1e12 for row in own]
            label = f"{name}, fp8" if narrow else name
            if own:
                x = [intensity(row) for row in own]
                axis.plot(x, rates, "x" if narrow else ".", c=colour, label=label)
    if roofs:
        _draw_roofs(axis, roofs)
    axis.set_yscale("log")
    axis.set_ylabel("TFLOP/s")


def _draw_roofs(axis: Any, roofs: Roofs) -> None:  # noqa: ANN401
    x = np.geomspace(0.3, 2e4, 200)
    for number_format, style in (("bf16", "-"), ("fp8", "--")):
        peak = roofs.flops_per_second(number_format)
        if peak:
            roof = np.minimum(peak, x * roofs.bytes_per_second) / 1e12
            axis.plot(x, roof, style, c="k", lw=0.9, label=f"roof, {number_format}")


def _power(axis: Any, rows: Sequence[MeasurementRow]) -> None:  # noqa: ANN401
    """Mean draw over intensity; hollow where the board was held at its limit."""
    for name, colour in COLOURS.items():
        for held in (False, True):
            own = [
                r for r in rows
                if r.power and r.kernel.kernel_class == name and ("throttled" in r.flags) is held
            ]  # fmt: skip
            if own:
                axis.plot(
                    [intensity(r) for r in own],
                    [r.power.mean_watts for r in own if r.power],
                    "o", ms=4, c=colour, mfc="none" if held else colour,
                    label=f"{name}, held" if held else name,
                )  # fmt: skip
    axis.axhline(rows[0].identity.power_limit_watts, c="k", lw=0.8)
    axis.set_ylabel("mean draw, W (streams: at the left edge)")
    axis.set_ylim(bottom=0)


def intensity(row: MeasurementRow) -> float:
    """Operations per byte; streams stand at a fixed place on the left."""
    kernel = row.kernel
    return kernel.flops / kernel.bytes_moved if kernel.flops else STREAM_INTENSITY


def _is_fp8(row: MeasurementRow) -> bool:
    return getattr(row.kernel, "number_format", "") == "fp8"
