"""Which GPU is which rank, and what the links between the ranks then give.

Ranks are an array of shape (pipeline, data, context, tensor) of GPU numbers; searches hold many at
once, shape (n, pipeline, data, context, tensor).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.link_matrix import LinkMatrix
from capacity.training.training_job import ParallelLayout

__all__ = [
    "PlacedLinks",
    "drawn_placements",
    "first_placements",
    "neighbours",
    "placed_links",
    "rings_are_pure",
]

#: Neighbours looked at in one turn of a search, beyond which they are drawn.
MOST_SWAPS: Final = 1024
ALL_ORDERS_OF: Final = 6
DRAWN_STARTS: Final = 64


@dataclass(frozen=True, slots=True)
class PlacedLinks:
    """The slowest link of each group of ranks, for n placements.

    Attributes:
        boundary_rate: Between stages s and s + 1 of each replica, shape (n, data, pipeline - 1),
            bytes a second.
        ring_rate: Of each stage's sum over data and context, shape (n, pipeline). Rings that
            pass through a host with several members use as many network cards.
        expert_ring_rate: As ``ring_rate``, of replicas that hold the same experts.
        tensor_rate, context_rate: Over all groups of each stage, shape (n, pipeline).
        *_delay: Of the slowest hop, seconds, likewise.
        deal_seconds_per_byte: Of what every rank sends to all of the ranks among which experts are
            dealt out, itself included; ``deal_delay``: of all its turns. Shape (n, pipeline).
    """

    boundary_rate: Floats
    boundary_delay: Floats
    ring_rate: Floats
    ring_delay: Floats
    tensor_rate: Floats
    tensor_delay: Floats
    context_rate: Floats
    context_delay: Floats
    expert_ring_rate: Floats
    expert_ring_delay: Floats
    deal_seconds_per_byte: Floats
    deal_delay: Floats


def placed_links(links: LinkMatrix, ranks: Indices, expert: int = 1) -> PlacedLinks:
    """What these placements give, shape (n, pipeline, data, context, tensor).

    Args:
        expert: Neighbouring replicas among which experts are dealt out.
    """
    n, pipeline, data, context, tensor = ranks.shape
    ahead, behind = ranks[:, :-1], ranks[:, 1:]
    slowest = links.bytes_per_second[ahead, behind].min(axis=(3, 4), initial=np.inf)
    longest = links.latency_seconds[ahead, behind].max(axis=(3, 4), initial=0.0)
    members = ranks.reshape(n, pipeline, data * context, tensor)
    rings = np.moveaxis(members, 3, 2)
    ring_rate, ring_delay = _ring(links, rings)
    tensor_rate, tensor_delay = _ring(links, ranks)
    context_rate, context_delay = _ring(links, np.moveaxis(ranks, 3, 4), splits=False)
    dealt = rings.reshape(*rings.shape[:3], data * context // expert, expert)
    alike_rate, alike_delay = ring_rate, ring_delay
    if expert > 1:
        rate, delay = _ring(links, np.moveaxis(dealt, 3, 4))
        alike_rate, alike_delay = rate.min(axis=3), delay.max(axis=3)
    deal_seconds, deal_delay = _deal(links, dealt)
    return PlacedLinks(
        boundary_rate=np.moveaxis(slowest, 2, 1),
        boundary_delay=np.moveaxis(longest, 2, 1),
        ring_rate=ring_rate.min(axis=2),
        ring_delay=ring_delay.max(axis=2),
        tensor_rate=tensor_rate.min(axis=(2, 3)),
        tensor_delay=tensor_delay.max(axis=(2, 3)),
        context_rate=context_rate.min(axis=(2, 3)),
        context_delay=context_delay.max(axis=(2, 3)),
        expert_ring_rate=alike_rate.min(axis=2),
        expert_ring_delay=alike_delay.max(axis=2),
        deal_seconds_per_byte=deal_seconds.max(axis=(2, 3)),
        deal_delay=deal_delay.max(axis=(2, 3)),
    )


def _deal(links: LinkMatrix, members: Indices) -> tuple[Floats, Floats]:
    """Seconds a byte and delay of an all-to-all over the last axis.

    In turn k every member sends its part to the k-th one after it, so that each card has one flow
    out and one in; a turn is as long as its slowest flow.
    """
    size = members.shape[-1]
    seconds, delays = np.zeros(members.shape[:-1]), np.zeros(members.shape[:-1])
    for turn in range(1, size):
        there = np.roll(members, -turn, axis=-1)
        seconds += (1 / links.bytes_per_second[members, there]).max(axis=-1) / size
        delays += links.latency_seconds[members, there].max(axis=-1)
    return seconds, delays


def _ring(links: LinkMatrix, members: Indices, splits: bool = True) -> tuple[Floats, Floats]:
    """Rate and hop delay of rings over the last axis; infinitely fast where it has one member.

    Args:
        splits: Whether the message may be cut among several rings; what is passed on from rank
            to rank, as keys and values are, goes through the one card of the rank that sends.
    """
    size = members.shape[-1]
    if size == 1:
        return np.full(members.shape[:-1], np.inf), np.zeros(members.shape[:-1])
    following = np.roll(members, -1, axis=-1)
    rate = links.bytes_per_second[members, following]
    delay = links.latency_seconds[members, following]
    leaves = links.host[members] != links.host[following]
    crossings = leaves.sum(axis=-1)
    # Members on one host each bring a network card, and the sum is cut among as many rings.
    cards = np.where((crossings > 0) & splits, size / np.maximum(crossings, 1), 1.0)
    outside = np.where(leaves, rate, np.inf).min(axis=-1) * cards
    inside = np.where(leaves, np.inf, rate).min(axis=-1)
    return np.minimum(outside, inside), delay.max(axis=-1)


def rings_are_pure(links: LinkMatrix, ranks: Indices) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether every sum over data and context, and every tensor group, keeps to one NIC class.

    Ranks as for ``placed_links``; shape (n,). Groups inside one host have one class by nature.
    """
    kinds = np.unique(links.class_of_gpu, return_inverse=True)[1][ranks]
    stage = kinds.reshape(*kinds.shape[:2], int(np.prod(kinds.shape[2:])))
    pure: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (stage == stage[..., :1]).all(axis=(1, 2))
        if ranks.shape[2] * ranks.shape[3] > 1
        else (kinds == kinds[..., :1]).all(axis=(1, 2, 3, 4))
    )
    return pure


def first_placements(
    links: LinkMatrix, layout: ParallelLayout, types: Indices | None = None
) -> Iterator[Indices]:
    """Placements to begin with, each (pipeline, data, context, tensor): tensor groups in one host.

    Stages on neighbouring GPUs, then replicas on neighbouring GPUs, both with the hosts grouped by
    NIC class and GPU type, so that the pipeline crosses between them once; where there are several
    types, also the other way round. Nothing comes where a tensor group would span hosts or a ring
    would mix classes.

    Args:
        types: Of each GPU, shape (n_gpus,); one if None.
    """
    kinds = np.zeros(links.gpus, dtype=np.int64) if types is None else types
    for order in [kinds] if np.ptp(kinds) == 0 else [kinds, -kinds]:
        yield from _placements_in(links, layout, _by_class(links, order))


def _placements_in(links: LinkMatrix, layout: ParallelLayout, order: Indices) -> Iterator[Indices]:
    """Both placements of GPUs in this order that keep the rules."""
    shape = (layout.pipeline, layout.data, layout.context, layout.tensor)
    stages = order.reshape(shape)
    replicas = np.moveaxis(
        order.reshape(layout.data, layout.pipeline, layout.context, layout.tensor), 0, 1
    )
    for ranks in (stages, replicas) if layout.pipeline > 1 and layout.data > 1 else (stages,):
        host = links.host[ranks]
        whole = (host == host[..., :1]).all()
        if whole and rings_are_pure(links, ranks[None])[0]:
            yield ranks


def _by_class(links: LinkMatrix, types: Indices) -> Indices:
    """All GPUs, classes one after the other, in each the types, hosts together."""
    kinds = np.unique(links.class_of_gpu, return_inverse=True)[1]
    return np.lexsort((np.arange(links.gpus), links.host, types, kinds)).astype(np.int64)


def neighbours(ranks: Indices, rng: np.random.Generator) -> Indices:
    """Placements one step away, shape (n, ...): two tensor groups or a run of stages turned."""
    blocks = ranks.reshape(-1, ranks.shape[-1])
    one, two = np.triu_indices(len(blocks), k=1)
    if len(one) > MOST_SWAPS:
        drawn = rng.choice(len(one), MOST_SWAPS, replace=False)
        one, two = one[drawn], two[drawn]
    many = np.repeat(blocks[None], len(one), axis=0)
    each = np.arange(len(one))
    many[each, one], many[each, two] = blocks[two], blocks[one]
    swaps = many.reshape(len(one), *ranks.shape)
    pipeline = len(ranks)
    if pipeline < 3:
        return swaps
    starts, ends = np.triu_indices(pipeline, k=1)
    orders = np.tile(np.arange(pipeline), (len(starts), 1))
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        orders[row, start : end + 1] = orders[row, start : end + 1][::-1]
    turned = ranks[orders]
    return np.concatenate([swaps, turned[:MOST_SWAPS]])


def drawn_placements(ranks: Indices, rng: np.random.Generator) -> Indices:
    """Placements far away, shape (n, ...): every order of few tensor groups, or drawn ones.

    Drawn ones permute whole stages and the groups inside a stage, so that rings stay pure.
    """
    blocks = ranks.reshape(-1, ranks.shape[-1])
    if len(blocks) <= ALL_ORDERS_OF:
        orders = np.array(list(permutations(range(len(blocks)))))
        every: Indices = blocks[orders].reshape(len(orders), *ranks.shape)
        return every
    drawn = []
    for _ in range(DRAWN_STARTS):
        made = ranks[rng.permutation(len(ranks))]
        inside = made.reshape(len(ranks), -1, ranks.shape[-1])
        for stage in range(len(ranks)):
            inside[stage] = inside[stage][rng.permutation(inside.shape[1])]
        drawn.append(inside.reshape(ranks.shape))
    return np.stack(drawn)
