"""Seconds of one training step in closed form, for many layouts or many placements at once.

A step is the pipeline of micro-batches, the sums of gradients that the last backward passes could
not hide, and the optimiser's update:

    pipeline = first micro-batch there and back + (micro-batches - 1) x period
    period   = the largest mean of (work + 2 x transfer) over any run of neighbouring stages

The period is the largest cycle mean of the one-forward-one-backward schedule: stage i may hold
(stages - i) micro-batches, so the round trip over stages i..k ends k - i + 1 turns later. An
interleaved schedule overlaps transfers with other chunks and fills in 1 / chunks of the time.

Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; the overlap of gradient sums with
backward layers as two chained queues (Mist, arXiv 2503.19050, models overlap the same way).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.rank_placement import PlacedLinks

__all__ = ["StepTimes", "StepWork", "step_times"]


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
        context_bytes: Keys and values that a rank passes on, forward; twice that backward.
        boundary_bytes: Each GPU to its peer in the next stage.
        layer_gradient_bytes: One rank's gradients of a layer; ``table_gradient_bytes`` of the
            embedding table or the output layer.
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
        boundary: One transfer between stages, shape (n, pipeline - 1).
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
    boundary: Floats
    period: Floats


def step_times(work: StepWork, links: PlacedLinks, layers: Floats, speed: Floats) -> StepTimes:
    """The step of each layout on its links.

    Args:
        layers: Of each stage, shape (n, pipeline).
        speed: Of each stage's slowest GPU relative to an uncapped one, shape (n, pipeline).
    """
    compute_f, compute_b = _compute(work, layers, speed)
    layer_f, layer_b = _layer_exchange(work, links, speed)
    ring_f, ring_b = _sharded_exchange(work, links, speed, (layer_f, layer_b))
    forward = compute_f + layers * (layer_f + ring_f)
    backward = compute_b + layers * (layer_b + ring_b)
    boundary = work.boundary_bytes[:, None] / links.boundary_rate + links.boundary_delay
    each = forward + backward
    boundary = np.broadcast_to(boundary, (len(each), boundary.shape[1]))
    period = _period(each, boundary, work.chunks)
    first = each.sum(axis=1) / work.chunks + 2 * boundary.sum(axis=1)
    pipeline = first + (work.micro_batches - 1 / work.chunks) * period
    gradient = _visible_gradient(work, links, layers, backward, boundary)
    done = np.maximum(pipeline, pipeline + gradient.max(axis=1))
    update = _update(work, links, layers, done)
    busy = work.micro_batches[:, None] * (compute_f + compute_b)
    return StepTimes(
        total=done + update,
        pipeline=pipeline,
        bubble=pipeline - work.micro_batches * each.max(axis=1),
        imbalance=work.micro_batches * (each.max(axis=1) - each.mean(axis=1)),
        gradient=done - pipeline,
        update=update,
        stage_busy=busy,
        stage_exchange=work.micro_batches[:, None] * each - busy,
        boundary=boundary,
        period=period,
    )


def _compute(work: StepWork, layers: Floats, speed: Floats) -> tuple[Floats, Floats]:
    forward = layers * work.layer_forward_seconds[:, None]
    backward = layers * work.layer_backward_seconds[:, None]
    forward[:, -1] += work.output_forward_seconds
    backward[:, -1] += work.output_backward_seconds
    return forward / speed, backward / speed


def ring_seconds(size: Floats, message_bytes: Floats, rate: Floats, delay: Floats) -> Floats:
    """One pass of a message around a ring: all but one of ``size`` parts over the slowest link."""
    passes = size - 1
    sent: Floats = np.where(size > 1, passes * (message_bytes / size / rate + delay), 0.0)
    return sent


def _layer_exchange(work: StepWork, links: PlacedLinks, speed: Floats) -> tuple[Floats, Floats]:
    """Visible seconds of a layer and micro-batch: tensor sums, and context beyond attention."""
    one = 2 * ring_seconds(work.tensor, work.tensor_bytes, links.tensor_rate, links.tensor_delay)
    hops = np.maximum(work.context - 1, 0.0)
    sent = work.context_bytes / links.context_rate
    passed = hops * (sent + links.context_delay)
    passed_back = hops * (2 * sent + links.context_delay)
    attention = work.attention_seconds[:, None] / speed
    forward = np.maximum(0.0, passed[:, None] - attention * _hop_share(work))
    backward = np.maximum(0.0, passed_back[:, None] - 2.5 * attention * _hop_share(work))
    sums_f, sums_b = work.forward_sums * one, work.backward_sums * one
    return sums_f[:, None] + forward, sums_b[:, None] + backward


def _hop_share(work: StepWork) -> Floats:
    """Of attention that runs while something is still on its way, shape (n, 1)."""
    share: Floats = (work.context - 1) / np.maximum(work.context, 1.0)
    return share[:, None]


def _sharded_exchange(
    work: StepWork, links: PlacedLinks, speed: Floats, exchange: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Visible seconds of a layer and micro-batch for weights gathered and gradients scattered.

    They hide beside the layer's compute and its own exchanges, which use other links.
    """
    size = work.replicas[:, None]

    def passed(message_bytes: Floats) -> Floats:
        moved = ring_seconds(size, message_bytes[:, None], links.ring_rate, links.ring_delay)
        made: Floats = np.where(message_bytes[:, None] > 0, moved, 0.0)
        return made

    gather, scatter = passed(work.micro_gather_bytes), passed(work.micro_scatter_bytes)
    if not work.overlap:
        return gather, gather + scatter
    forward = work.layer_forward_seconds[:, None] / speed + exchange[0]
    backward = work.layer_backward_seconds[:, None] / speed + exchange[1]
    return np.maximum(0.0, gather - forward), np.maximum(0.0, gather + scatter - backward)


def _period(each: Floats, boundary: Floats, chunks: Floats) -> Floats:
    """Between two micro-batches in the steady state, shape (n,)."""
    pipeline = each.shape[1]
    longest: Floats = each.max(axis=1)
    if pipeline == 1:
        return longest
    done = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, axis=1)], axis=1)
    sent = np.concatenate([np.zeros((len(each), 1)), np.cumsum(boundary, axis=1)], axis=1)
    plain = longest
    for first in range(pipeline - 1):
        turns = np.arange(2, pipeline - first + 1)
        trip = done[:, first + 2 :] - done[:, [first]]
        trip = trip + 2 * (sent[:, first + 1 :] - sent[:, [first]])
        plain = np.maximum(plain, (trip / turns).max(axis=1))
    interleaved = np.maximum(longest, chunks * boundary.max(axis=1))
    period: Floats = np.where(chunks > 1, interleaved, plain)
    return period


def _visible_gradient(
    work: StepWork, links: PlacedLinks, layers: Floats, backward: Floats, boundary: Floats
) -> Floats:
    """Seconds after the first stage's last backward pass until each stage's sums are done.

    Layer by layer, a sum starts when its layer's gradients are there and the sum before it is done;
    later stages start earlier by the backward passes before them. Shape (n, pipeline), may be
    negative.
    """
    size = work.replicas[:, None]

    def summed(message_bytes: Floats, steps: Floats) -> Floats:
        once = ring_seconds(size, message_bytes[:, None], links.ring_rate, links.ring_delay)
        made: Floats = steps[:, None] * once
        return made

    one = summed(work.layer_gradient_bytes, work.sum_steps)
    table = summed(work.table_gradient_bytes, work.table_sum_steps)
    tables = np.zeros_like(layers, dtype=np.float64)
    tables[:, 0] += table[:, 0]
    tables[:, -1] += table[:, -1]
    if work.overlap:
        mean = backward / np.maximum(layers, 1)
        visible = one + np.maximum(0.0, (layers - 1) * (one - mean)) + tables
        visible = np.where(layers > 0, visible, tables)
    else:
        visible = layers * one + tables
    before = np.cumsum(backward[:, :-1] / work.chunks[:, None] + boundary, axis=1)
    earlier = np.concatenate([np.zeros((len(before), 1)), before], axis=1)
    shown: Floats = visible - earlier
    return shown


def _update(work: StepWork, links: PlacedLinks, layers: Floats, done: Floats) -> Floats:
    """Optimiser, gathers of new weights and what of an offloaded update shows, shape (n,)."""
    size = work.replicas[:, None]

    def stages(layer: Floats, table: Floats) -> Floats:
        amounts: Floats = layers * layer[:, None]
        amounts[:, 0] += table
        amounts[:, -1] += table
        return amounts

    gathered = stages(work.gather_bytes, work.table_gather_bytes)
    gather = np.where(
        gathered > 0, ring_seconds(size, gathered, links.ring_rate, links.ring_delay), 0.0
    )
    local = stages(work.update_seconds, work.table_update_seconds)
    away = stages(work.offload_seconds, work.table_offload_seconds)
    away = np.maximum(0.0, away - work.offload_overlap * done[:, None])
    slowest: Floats = (gather + local + away).max(axis=1)
    return slowest
