"""Seconds of one training step in closed form, for many layouts or many placements at once.

A step is the pipeline of micro-batches, the sums of gradients that the last backward passes could
not hide, and the optimiser's update:

    pipeline = until a stage's first backward pass + turns x period + from its last forward pass
    period   = the largest mean of (work + 2 x transfer) over any run of neighbouring stages

of the stage and the replica for which that is the longest. The period is a cycle mean of the
one-forward-one-backward schedule: stage i may hold (stages - i) micro-batches, so the round trip
over stages i..k ends k - i + 1 turns later. An interleaved schedule overlaps transfers with other
chunks and fills in 1 / chunks of the time.

Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; the overlap of gradient sums with
backward layers as two chained queues (Mist, arXiv 2503.19050, models overlap the same way).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.rank_placement import PlacedLinks

__all__ = ["StepTimes", "StepWork", "step_times"]

ROUNDING: Final = 1e-12
"""Of a pipeline's time: a wait below it is a difference of two equal sums, and none."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What each layout does, independent of links and of how layers are split; shape (n,) each.

    Attributes:
        layer_forward_seconds: One micro-batch on one layer; ``layer_backward_seconds`` with what
            is recomputed; ``output_*_seconds`` of the output layer on the last stage.
        attention_seconds: Under which context exchanges of a layer hide, forward.
        tensor: Ranks of a tensor group; ``context`` and ``replicas`` likewise.
        tensor_bytes: Each sum over the tensor group; ``forward_sums`` and ``backward_sums`` of them
            a layer and micro-batch.
        dealt_bytes: Of a layer's tokens sent to experts and back, forward; ``backward_deals`` times
            that backward, with what is recomputed.
        expert: Ranks among which experts are dealt out; ``expert_ratio``: parameters of a rank's
            experts over those of the rest of a layer.
        context_bytes: Keys and values that a rank passes on, forward; twice that backward.
        boundary_bytes: Each GPU to its peer in the next stage.
        layer_gradient_bytes: One rank's gradients of a layer without experts;
            ``table_gradient_bytes`` of the embedding table or the output layer.
        sum_steps: Passes around the ring of a layer's gradient sum at the end of the step: 2 for
            an all-reduce, 1 for a reduce-scatter, 0 where every micro-batch does it;
            ``table_sum_steps`` of the tables'.
        micro_gather_bytes: Weights of a layer gathered in every pass of a micro-batch;
            ``micro_scatter_bytes``: gradients scattered in every backward pass.
        gather_bytes: Updated weights of a layer that replicas gather after the update.
        update_seconds: Of one layer's share of the optimiser; ``table_update_seconds``.
        offload_seconds: Of one layer's share of an offloaded update.
        offload_overlap: Share of the step under which it hides.
    """

    micro_batches: Floats
    chunks: Floats
    layer_forward_seconds: Floats
    layer_backward_seconds: Floats
    attention_seconds: Floats
    output_forward_seconds: Floats
    output_backward_seconds: Floats
    tensor: Floats
    context: Floats
    replicas: Floats
    tensor_bytes: Floats
    forward_sums: Floats
    backward_sums: Floats
    dealt_bytes: Floats
    backward_deals: Floats
    expert: Floats
    expert_ratio: Floats
    context_bytes: Floats
    boundary_bytes: Floats
    layer_gradient_bytes: Floats
    table_gradient_bytes: Floats
    sum_steps: Floats
    table_sum_steps: Floats
    micro_gather_bytes: Floats
    micro_scatter_bytes: Floats
    gather_bytes: Floats
    table_gather_bytes: Floats
    update_seconds: Floats
    table_update_seconds: Floats
    offload_seconds: Floats
    table_offload_seconds: Floats
    overlap: bool
    offload_overlap: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of one step, every array of shape (n,) or (n, pipeline).

    Attributes:
        total: The whole step.
        pipeline: Until the last backward pass of the first stage.
        bubble: Of it, what the busiest stage waits; ``imbalance``: what a stage of mean work
            waits for that one.
        gradient: Sums that stay visible after it; ``update``: optimiser, gathers and offload.
        stage_busy: Computing, by stage; ``stage_exchange``: visible exchanges inside stages.
        period: Between two micro-batches.
    """

    total: Floats
    pipeline: Floats
    bubble: Floats
    imbalance: Floats
    gradient: Floats
    update: Floats
    stage_busy: Floats
    stage_exchange: Floats
    period: Floats


def step_times(
    work: StepWork,
    links: PlacedLinks,
    layers: Floats,
    speed: Floats,
    update_speed: Floats | float = 1.0,
) -> StepTimes:
    """The step of each layout on its links: every replica has its own pipeline.

    Args:
        layers: Of each stage, shape (n, pipeline).
        speed: Of each replica's and stage's slowest GPU relative to an uncapped one, shape
            (n, data, pipeline).
        update_speed: Of each stage's slowest GPU in the optimiser's pass, shape (n, pipeline).
    """
    compute_f, compute_b = _compute(work, layers, speed)
    layer_f, layer_b = _layer_exchange(work, links, speed)
    ring_f, ring_b = _sharded_exchange(work, links, speed, (layer_f, layer_b))
    forward = compute_f + layers[:, None] * (layer_f + ring_f)
    backward = compute_b + layers[:, None] * (layer_b + ring_b)
    boundary = work.boundary_bytes[:, None, None] / links.boundary_rate + links.boundary_delay
    boundary = np.broadcast_to(boundary, (*forward.shape[:2], boundary.shape[2]))
    ends, period = _pipeline(work, forward, backward, boundary)
    pipeline = ends.max(axis=1)
    summed = _sums_end(work, links, layers, backward, boundary, ends)
    done = np.maximum(pipeline, summed.max(axis=1))
    update = _update(work, links, layers, done, update_speed)
    each = (forward + backward).max(axis=1)
    busy = work.micro_batches[:, None] * (compute_f + compute_b).max(axis=1)
    waited = pipeline - work.micro_batches * each.max(axis=1)
    return StepTimes(
        total=done + update,
        pipeline=pipeline,
        bubble=np.where(waited > ROUNDING * pipeline, waited, 0.0),
        imbalance=work.micro_batches * (each.max(axis=1) - each.mean(axis=1)),
        gradient=done - pipeline,
        update=update,
        stage_busy=busy,
        stage_exchange=work.micro_batches[:, None] * each - busy,
        period=period.max(axis=1),
    )


def _compute(work: StepWork, layers: Floats, speed: Floats) -> tuple[Floats, Floats]:
    forward = layers * work.layer_forward_seconds[:, None]
    backward = layers * work.layer_backward_seconds[:, None]
    forward[:, -1] += work.output_forward_seconds
    backward[:, -1] += work.output_backward_seconds
    return forward[:, None] / speed, backward[:, None] / speed


def ring_seconds(size: Floats, message_bytes: Floats, rate: Floats, delay: Floats) -> Floats:
    """One pass of a message around a ring: all but one of ``size`` parts over the slowest link."""
    passes = size - 1
    sent: Floats = np.where(size > 1, passes * (message_bytes / size / rate + delay), 0.0)
    return sent


def _replica_pass(
    work: StepWork, links: PlacedLinks, layer_bytes: Floats, table_bytes: Floats | float = 0.0
) -> Floats:
    """One pass of every stage's rings over replicas, then over those that hold the same experts.

    Args:
        layer_bytes: Without the experts, shape (n, 1) or (n, pipeline); ``table_bytes`` likewise.
    """
    size = work.replicas[:, None]
    rest_bytes = layer_bytes + table_bytes
    rest = ring_seconds(size, rest_bytes, links.ring_rate, links.ring_delay)
    expert_bytes = work.expert_ratio[:, None] * layer_bytes
    alike = ring_seconds(
        size / work.expert[:, None], expert_bytes, links.expert_ring_rate, links.expert_ring_delay
    )
    passed: Floats = np.where(rest_bytes > 0, rest, 0.0) + np.where(expert_bytes > 0, alike, 0.0)
    return passed


def _layer_exchange(work: StepWork, links: PlacedLinks, speed: Floats) -> tuple[Floats, Floats]:
    """Visible seconds of a layer and micro-batch: tensor sums, and context beyond attention."""
    one = 2 * ring_seconds(
        work.tensor[:, None], work.tensor_bytes[:, None], links.tensor_rate, links.tensor_delay
    )
    hops = np.maximum(work.context - 1, 0.0)[:, None]
    sent = work.context_bytes[:, None] / links.context_rate
    passed = hops * (sent + links.context_delay)
    passed_back = hops * (2 * sent + links.context_delay)
    attention = (work.attention_seconds * _hop_share(work))[:, None, None] / speed
    forward = np.maximum(0.0, passed[:, None] - attention)
    backward = np.maximum(0.0, passed_back[:, None] - 2.5 * attention)
    sums_f, sums_b = work.forward_sums[:, None] * one, work.backward_sums[:, None] * one
    there_and_back = np.where(work.dealt_bytes > 0, 2.0, 0.0)[:, None] * links.deal_delay
    dealt = work.dealt_bytes[:, None] * links.deal_seconds_per_byte + there_and_back
    forward = forward + (sums_f + dealt)[:, None]
    return forward, backward + (sums_b + work.backward_deals[:, None] * dealt)[:, None]


def _hop_share(work: StepWork) -> Floats:
    """Of attention that runs while something is still on its way, shape (n,)."""
    share: Floats = (work.context - 1) / np.maximum(work.context, 1.0)
    return share


def _sharded_exchange(
    work: StepWork, links: PlacedLinks, speed: Floats, exchange: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Visible seconds of a layer and micro-batch for weights gathered and gradients scattered.

    They hide beside the layer's compute and its own exchanges, which use other links.
    """
    gather, scatter = (
        _replica_pass(work, links, message_bytes[:, None])[:, None]
        for message_bytes in (work.micro_gather_bytes, work.micro_scatter_bytes)
    )
    if not work.overlap:
        return gather, gather + scatter
    forward = work.layer_forward_seconds[:, None, None] / speed + exchange[0]
    backward = work.layer_backward_seconds[:, None, None] / speed + exchange[1]
    return np.maximum(0.0, gather - forward), np.maximum(0.0, gather + scatter - backward)


def _pipeline(
    work: StepWork, forward: Floats, backward: Floats, boundary: Floats
) -> tuple[Floats, Floats]:
    """End of each replica's last backward pass and its period, both of shape (n, data)."""
    each, chunks, count = forward + backward, work.chunks[:, None], work.micro_batches[:, None]
    turns = _turns(each, boundary)
    plain = _plain(forward, backward, boundary, turns, work.micro_batches)
    longest = np.maximum(each.max(axis=2), chunks * boundary.max(axis=2, initial=0.0))
    period = np.where(chunks > 1, longest, turns.max(axis=2))
    first = each.sum(axis=2) / chunks + 2 * boundary.sum(axis=2)
    return np.where(chunks > 1, first + (count - 1 / chunks) * period, plain), period


def _turns(each: Floats, boundary: Floats) -> Floats:
    """Seconds a micro-batch of the slowest run of stages that ends at each one, as ``each``."""
    pipeline = each.shape[2]
    done, sent = _from_zero(each), _from_zero(boundary)
    slowest = each.copy()
    for stages in range(2, pipeline + 1):
        last = stages - 1
        trip = done[..., stages:] - done[..., :-stages]
        trip = trip + 2 * (sent[..., last:] - sent[..., :-last])
        slowest[..., last:] = np.maximum(slowest[..., last:], trip / stages)
    return slowest


def _plain(
    forward: Floats, backward: Floats, boundary: Floats, turns: Floats, micro_batches: Floats
) -> Floats:
    """Until the first stage's last backward pass, one forward one backward; shape (n, data).

    The longest way through the schedule by the stage around which it turns. That stage has made
    ``ahead`` forward passes when its first backward pass may begin: after its own one more, or when
    the first micro-batch is back from the end of the pipeline. As many backward passes are left
    after its last forward pass, and in between it makes one turn after the other.
    """
    pipeline = forward.shape[2]
    count = micro_batches[:, None, None]
    ahead = np.minimum(np.arange(pipeline - 1, -1, -1), count - 1)
    links = np.pad(boundary, ((0, 0), (0, 0), (0, 1)))
    trip = forward + backward + 2 * links
    beyond = trip.sum(axis=2, keepdims=True) - np.cumsum(trip, axis=2) + 2 * links
    down, up = (_from_zero(passed + links)[..., :-1] for passed in (forward, backward))
    begins = down + np.maximum((ahead + 1) * forward, forward + beyond)
    ends = up + np.maximum((ahead + 1) * backward, backward + beyond)
    longest: Floats = (begins + (count - 1 - ahead) * turns + ends).max(axis=2)
    return longest


def _from_zero(amounts: Floats) -> Floats:
    """Sums before each place of the last axis and of all of it: one place more."""
    return np.pad(np.cumsum(amounts, axis=-1), ((0, 0), (0, 0), (1, 0)))


def _sums_end(
    work: StepWork,
    links: PlacedLinks,
    layers: Floats,
    backward: Floats,
    boundary: Floats,
    ends: Floats,
) -> Floats:
    """When each stage's sums of gradients are done, shape (n, pipeline).

    Layer by layer, a sum starts when its layer's gradients are there in every replica and the sum
    before it is done; later stages start earlier by the backward passes before them.
    """
    one = _replica_pass(work, links, work.layer_gradient_bytes[:, None])
    one = (work.sum_steps[:, None] * one)[:, None]
    table = work.table_sum_steps[:, None] * ring_seconds(
        work.replicas[:, None],
        work.table_gradient_bytes[:, None],
        links.ring_rate,
        links.ring_delay,
    )
    tables = np.zeros_like(table)
    tables[:, 0] += table[:, 0]
    tables[:, -1] += table[:, -1]
    held = layers[:, None]
    if work.overlap:
        mean = backward / np.maximum(held, 1)
        visible = one + np.maximum(0.0, (held - 1) * (one - mean))
        visible = np.where(held > 0, visible, 0.0)
    else:
        visible = held * one
    before = _from_zero(backward[..., :-1] / work.chunks[:, None, None] + boundary)
    done: Floats = (ends[..., None] - before + visible).max(axis=1) + tables
    return done


def _update(
    work: StepWork, links: PlacedLinks, layers: Floats, done: Floats, speed: Floats | float
) -> Floats:
    """Optimiser, gathers of new weights and what of an offloaded update shows, shape (n,)."""
    none = np.zeros_like(work.gather_bytes)

    def stages(layer: Floats, table: Floats) -> Floats:
        amounts: Floats = layers * layer[:, None]
        amounts[:, 0] += table
        amounts[:, -1] += table
        return amounts

    gather = _replica_pass(
        work, links, stages(work.gather_bytes, none), stages(none, work.table_gather_bytes)
    )
    local = stages(work.update_seconds, work.table_update_seconds) / speed
    away = stages(work.offload_seconds, work.table_offload_seconds)
    away = np.maximum(0.0, away - work.offload_overlap * done[:, None])
    slowest: Floats = (gather + local + away).max(axis=1)
    return slowest
