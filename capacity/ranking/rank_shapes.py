"""Shapes of ranked tasks as people write them: ``4096x4096x4096``."""

from __future__ import annotations

from typing import Final

from capacity.kernels import Attention, Gemm, MemoryStream, NumberFormat
from capacity.ranking.ranked_task import RankedTask, TaskName
from wattpack.errors import InputError

AXES: Final[dict[TaskName, str]] = {
    "gemm": "MxNxK",
    "attention_prefill": "BATCHxQUERIESxKEYSxHEADSxKV_HEADSxWIDTH",
    "attention_decode": "BATCHxKEYSxHEADSxKV_HEADSxWIDTH",
    "bandwidth": "BYTES",
}

ON_GPU: Final[dict[TaskName, str]] = {
    "gemm": "4096x4096x4096,2048x14336x4096,64x8192x8192",
    "attention_prefill": "1x4096x4096x32x8x128,4x2048x2048x32x8x128",
    "attention_decode": "16x4096x32x8x128,64x2048x32x8x128",
    "bandwidth": "268435456",
}

ON_PROCESSOR: Final[dict[TaskName, str]] = {
    "gemm": "256x256x256,64x512x256",
    "attention_prefill": "1x128x128x4x2x64",
    "attention_decode": "4x256x8x2x64",
    "bandwidth": "1048576",
}


def ranked_tasks(name: TaskName, shapes: str, number_format: NumberFormat) -> list[RankedTask]:
    """The tasks of a comma-separated list of shapes.

    Raises:
        InputError: naming the shape, or the format that the task does not have.
    """
    tasks = [_task(name, shape.strip(), number_format) for shape in shapes.split(",")]
    if len({task.kernel for task in tasks}) < len(tasks):
        raise InputError("--shapes", "each shape once", shapes)
    return tasks


def _task(name: TaskName, shape: str, number_format: NumberFormat) -> RankedTask:
    try:
        sizes = [int(part) for part in shape.lower().split("x")]
    except ValueError:
        sizes = []
    if len(sizes) != AXES[name].count("x") + 1:
        raise InputError("--shapes", AXES[name], shape)
    if name == "gemm":
        return RankedTask(name, Gemm(sizes[0], sizes[1], sizes[2], number_format))
    if name == "bandwidth":
        return RankedTask(name, MemoryStream("triad", sizes[0]))
    if name == "attention_decode":
        sizes.insert(1, 1)
    batch, queries, keys, heads, kv_heads, width = sizes
    return RankedTask(name, Attention(
        "decode" if name == "attention_decode" else "prefill", batch, queries, keys, heads,
        kv_heads, width, number_format=number_format,
    ))  # fmt: skip
