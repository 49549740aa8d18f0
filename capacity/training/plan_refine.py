"""Local search for one layout: which GPU is which rank, and how many layers a stage holds.

Every neighbour of a step is priced at once: swaps of two tensor groups, moves of one layer (or
chunk) between two stages. Both stop where no neighbour is better.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from capacity.model.kernel_samples import Indices
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.rank_placement import (
    drawn_placements,
    neighbours,
    rings_are_pure,
)
from capacity.training.training_job import ParallelLayout

__all__ = ["refine"]

MOST_TURNS: Final = 60
SAME: Final = 1e-9
DRAWN_KEPT: Final = 4
"""Of the placements far away, from which a search begins as well."""

MOST_PAIRS: Final = 4096
"""Neighbours in placement times neighbours in layers that are looked at together."""


def refine(
    pricing: LayoutPricing, layout: ParallelLayout, *, thorough: bool
) -> tuple[Indices, Indices]:
    """Ranks and layers with the shortest step found: shapes (pipeline, ...) and (pipeline,).

    Args:
        thorough: From many starts until nothing helps, instead of one turn from the first ones.
    """
    problem = pricing.problem
    rng = np.random.default_rng(problem.choices.seed)
    if not thorough:
        starts = [(ranks, _split(pricing, layout, ranks)) for ranks in pricing.starts(layout)]
        starts = [start for start in starts if _fits(pricing, layout, *start)] or starts
        seconds = [_seconds(pricing, layout, r[None], split[None])[0] for r, split in starts]
        ranks, split = starts[int(np.argmin(seconds))]
        layers = balanced(pricing, layout, ranks, split)
        return _placed(pricing, layout, ranks, layers, rng), layers
    begun = [(ranks, _split(pricing, layout, ranks)) for ranks in _starts(pricing, layout, rng)]
    begun = [start for start in begun if _fits(pricing, layout, *start)] or begun
    found = [_from(pricing, layout, ranks, split, rng) for ranks, split in begun]
    _, ranks, layers = min(found, key=lambda row: row[0])
    # Memory can wall off the other way round: the first stage holds the most micro-batches.
    for turned in ((ranks[::-1], layers[::-1]), (ranks[::-1], layers), (ranks, layers[::-1])):
        if _fits(pricing, layout, *turned):
            found.append(_from(pricing, layout, *turned, rng))
    _, ranks, layers = min(found, key=lambda row: row[0])
    return ranks, layers


def _split(pricing: LayoutPricing, layout: ParallelLayout, ranks: Indices) -> Indices:
    """Layers a stage to begin with on this placement."""
    split: Indices = pricing.cut(LayoutTable.of(pricing.job, [layout]), ranks).layers[0]
    return split


def _fits(pricing: LayoutPricing, layout: ParallelLayout, ranks: Indices, layers: Indices) -> bool:
    return bool(pricing.fits(LayoutTable.of(pricing.job, [layout], layers[None]), ranks[None])[0])


def _starts(
    pricing: LayoutPricing, layout: ParallelLayout, rng: np.random.Generator
) -> list[Indices]:
    """The first placements, and the best few of many others."""
    links = pricing.problem.cluster.links
    starts = list(pricing.starts(layout))
    layers = _split(pricing, layout, starts[0])
    others = np.concatenate([drawn_placements(ranks, rng) for ranks in starts[:1]])
    others = others[rings_are_pure(links, others)]
    if len(others):
        order = np.argsort(_seconds(pricing, layout, others, layers[None]), kind="stable")
        starts += list(others[order[:DRAWN_KEPT]])
    return starts


def _from(
    pricing: LayoutPricing,
    layout: ParallelLayout,
    ranks: Indices,
    layers: Indices,
    rng: np.random.Generator,
) -> tuple[float, Indices, Indices]:
    """Turns of placing and balancing until neither helps; the seconds reached, and both."""
    best = float("inf")
    while True:
        layers = balanced(pricing, layout, ranks, layers)
        ranks = _placed(pricing, layout, ranks, layers, rng)
        ranks, layers, seconds = _moved_together(pricing, layout, ranks, layers, rng)
        if seconds >= best * (1 - SAME):
            return seconds, ranks, layers
        best = seconds


def _moved_together(
    pricing: LayoutPricing,
    layout: ParallelLayout,
    ranks: Indices,
    layers: Indices,
    rng: np.random.Generator,
) -> tuple[Indices, Indices, float]:
    """One step in which a placement and the layers change at once, where they are few enough."""
    now = float(_seconds(pricing, layout, ranks[None], layers[None])[0])
    near = np.concatenate([ranks[None], neighbours(ranks, rng)])
    near = near[rings_are_pure(pricing.problem.cluster.links, near)]
    moves = _layer_moves(layout, layers)
    if not len(moves) or len(near) * len(moves) > MOST_PAIRS:
        return ranks, layers, now
    one, two = np.divmod(np.arange(len(near) * len(moves)), len(moves))
    kept = pricing.fits(LayoutTable.of(pricing.job, [layout], moves[two]), near[one])
    one, two = one[kept], two[kept]
    if not len(one):
        return ranks, layers, now
    seconds = _seconds(pricing, layout, near[one], moves[two])
    best = int(seconds.argmin())
    if seconds[best] >= now * (1 - SAME):
        return ranks, layers, now
    return near[one[best]], moves[two[best]], float(seconds[best])


def _placed(
    pricing: LayoutPricing,
    layout: ParallelLayout,
    ranks: Indices,
    layers: Indices,
    rng: np.random.Generator,
) -> Indices:
    links = pricing.problem.cluster.links
    best = _seconds(pricing, layout, ranks[None], layers[None])[0]
    for _ in range(MOST_TURNS):
        near = neighbours(ranks, rng)
        near = near[rings_are_pure(links, near)]
        if pricing.is_mixed:
            near = near[pricing.fits(LayoutTable.of(pricing.job, [layout], layers[None]), near)]
        if not len(near):
            return ranks
        seconds = _seconds(pricing, layout, near, layers[None])
        nearest = int(seconds.argmin())
        if seconds[nearest] >= best * (1 - SAME):
            return ranks
        ranks, best = near[nearest], seconds[nearest]
    return ranks


def balanced(
    pricing: LayoutPricing, layout: ParallelLayout, ranks: Indices, layers: Indices
) -> Indices:
    """Layers a stage after moves of one layer (of every chunk) that shorten the step and fit."""
    if layout.pipeline == 1:
        return layers
    best = _seconds(pricing, layout, ranks[None], layers[None])[0]
    for _ in range(MOST_TURNS):
        moves = _layer_moves(layout, layers)
        if len(moves):
            moves = moves[pricing.fits(LayoutTable.of(pricing.job, [layout], moves), ranks[None])]
        if not len(moves):
            return layers
        seconds = _seconds(pricing, layout, ranks[None], moves)
        nearest = int(seconds.argmin())
        if seconds[nearest] >= best * (1 - SAME):
            return layers
        layers, best = moves[nearest], seconds[nearest]
    return layers


def _layer_moves(layout: ParallelLayout, layers: Indices) -> Indices:
    """Layers a stage after one move, shape (n, pipeline)."""
    moves = layers + _moves(layout)
    kept: Indices = moves[moves.min(axis=1, initial=layout.chunks) >= layout.chunks]
    return kept


def _moves(layout: ParallelLayout) -> Indices:
    """Changes of the layers a stage: from one stage to another, shape (n, pipeline)."""
    size = layout.pipeline
    one, two = np.nonzero(~np.eye(size, dtype=np.bool_))
    changes = np.zeros((len(one), size), dtype=np.int64)
    each = np.arange(len(one))
    changes[each, one], changes[each, two] = -layout.chunks, layout.chunks
    return changes


def _seconds(
    pricing: LayoutPricing, layout: ParallelLayout, ranks: Indices, layers: Indices
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rows = max(len(ranks), len(layers))
    table = LayoutTable.of(pricing.job, [layout], layers)
    total: np.ndarray[tuple[int], np.dtype[np.float64]] = np.broadcast_to(
        pricing.price(table, ranks).times.total, (rows,)
    )
    return total
