"""How many layers each stage of a pipeline can hold, and the split to begin with that fits.

The first stage keeps the most micro-batches, the last one the logits: a layout may hold the model
with uneven stages only. Slow stages begin with fewer layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.layout_table import LayoutTable

__all__ = ["fitting_split", "most_layers", "split_by_speed"]

ROUNDING: Final = 1e-9
"""Of a layer, by which a stage that is exactly full may miss its room."""

StageBytes = Callable[[LayoutTable], Floats]
"""Bytes of each stage, shape (n, pipeline): a constant and an amount for each layer it holds."""


def most_layers(table: LayoutTable, stage_bytes: StageBytes, room_bytes: Floats) -> Floats:
    """Layers (whole layers of every chunk) that each stage has room for, shape (n, pipeline).

    Infinite where layers take no room.

    Args:
        room_bytes: Of each stage's GPUs, shape (n, pipeline), or of all, shape (n, 1).
    """
    chunk = np.broadcast_to(table.chunks[:, None], table.layers.shape).astype(np.int64)
    one, two = (stage_bytes(table.with_layers(count * chunk)) for count in (1, 2))
    left, each = room_bytes - one, two - one
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(each > 0, left / each, np.where(left >= 0, np.inf, -1.0))
    most: Floats = np.floor(more + 1 + ROUNDING) * chunk
    return most


def split_by_speed(table: LayoutTable, speed: Floats) -> Indices:
    """Layers in proportion to each stage's speed, at least one (of every chunk) each.

    Args:
        speed: Shape (n, pipeline).
    """
    chunk = table.chunks.astype(np.int64)
    pieces = table.layers.sum(axis=1) // chunk
    ideal = pieces[:, None] * speed / speed.sum(axis=1, keepdims=True)
    held = np.maximum(1, np.floor(ideal)).astype(np.int64)
    left = pieces - held.sum(axis=1)
    while (left != 0).any():
        few, many = np.flatnonzero(left > 0), np.flatnonzero(left < 0)
        held[few, (ideal - held)[few].argmax(axis=1)] += 1
        spare = np.where(held > 1, held - ideal, -np.inf)
        held[many, spare[many].argmax(axis=1)] -= 1
        left = pieces - held.sum(axis=1)
    split: Indices = held * chunk[:, None]
    return split


def fitting_split(table: LayoutTable, most: Floats) -> Indices:
    """The table's layers, those above ``most`` given to the stages that then hold the least.

    Rows that no split fits stay as they are. Shape (n, pipeline).
    """
    layers = table.layers.copy()
    chunk = table.chunks.astype(np.int64)
    possible = (most >= chunk[:, None]).all(axis=1) & (most.sum(axis=1) >= layers.sum(axis=1))
    moved = np.flatnonzero(possible & (layers > most).any(axis=1))
    kept = np.minimum(layers[moved], most[moved]).astype(np.int64)
    left = layers[moved].sum(axis=1) - kept.sum(axis=1)
    while (left > 0).any():
        rows = np.flatnonzero(left > 0)
        has_room = kept[rows] < most[moved][rows]
        stage = np.where(has_room, kept[rows], np.iinfo(np.int64).max).argmin(axis=1)
        kept[rows, stage] += chunk[moved][rows]
        left[rows] -= chunk[moved][rows]
    layers[moved] = kept
    return layers
