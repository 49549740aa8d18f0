"""One training step played event by event: the judge of plans. Shares no code with the planner.

Every replica runs its own pipeline (one forward one backward, or interleaved) as a list of
operations in a fixed order; an operation begins when its stage is free and its input has arrived.
Transfers between stages queue on their link, one queue a direction. Gradient sums are buckets of
one layer that wait for every replica and for the bucket before them. Rings are passed step by step
over the links that the ranks really have. Tokens go to experts and back part by part: each member
of a group sends to one after the other and waits for who sends to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from capacity.training.layer_costs import LayerCosts
from capacity.training.link_matrix import LinkMatrix
from capacity.training.training_job import ParallelLayout, TrainingJob


@dataclass(frozen=True, slots=True)
class Device:
    """What the simulator knows of a GPU beside its layer times."""

    bytes_per_second: float
    host_link: float
    host_memory: float
    nvme: float


@dataclass(slots=True)
class Simulation:
    """A job, a layout, GPUs by rank ``[stage][data][context][tensor]`` and layers by stage."""

    job: TrainingJob
    layout: ParallelLayout
    costs: LayerCosts
    links: LinkMatrix
    ranks: list[list[list[list[int]]]]
    layers: list[int]
    device: Device
    speed: list[float] = field(default_factory=list)
    update_speed: list[float] = field(default_factory=list)

    def seconds(self) -> float:
        """From the first forward pass to the last update."""
        shape = self.layout
        ends: list[list[list[float]]] = []
        for data in range(shape.data):
            ends.append(self._pipeline(data))
        return self._finish(ends)

    # -- the pipeline of one replica -------------------------------------------------------------

    def _pipeline(self, data: int) -> list[list[float]]:
        """When each layer's last backward pass ends, by stage, last layer first."""
        shape, count = self.layout, self.layout.micro_batches(self.job)
        stages, chunks = shape.pipeline, shape.chunks
        orders = [pass_order(stage, stages, count, chunks) for stage in range(stages)]
        ready = {("F", 0, micro): 0.0 for micro in range(count)}
        post = _Post(self, data, ready, {})
        free = [0.0] * stages
        position = [0] * stages
        layer_ends: list[list[float]] = [[] for _ in range(stages)]
        final = stages * chunks - 1
        moved = True
        while moved:
            moved = False
            for stage in range(stages):
                while position[stage] < len(orders[stage]):
                    kind, chunk, micro = orders[stage][position[stage]]
                    virtual = chunk * stages + stage
                    came = ready.get((kind, virtual, micro))
                    if came is None:
                        break
                    begin = max(free[stage], came)
                    parts = self._layer_times(kind, stage, data, virtual == final)
                    marks = []
                    clock = begin
                    for part in parts:
                        clock += part
                        marks.append(clock)
                    free[stage] = clock
                    position[stage] += 1
                    moved = True
                    if kind == "B" and micro == count - 1:
                        layer_ends[stage] += marks
                    post.send(kind, virtual, micro, clock)
        assert all(position[s] == len(orders[s]) for s in range(stages)), "the schedule is stuck"
        return layer_ends

    def transfer(self, here: int, there: int, data: int) -> float:
        if here == there:
            return 0.0
        size = 2 * self._tokens() * self.job.model.hidden / self.layout.tensor
        longest = 0.0
        mine, theirs = self.ranks[here][data], self.ranks[there][data]
        for a_row, b_row in zip(mine, theirs, strict=True):
            for a, b in zip(a_row, b_row, strict=True):
                longest = max(longest, self._hop(a, b, size))
        return longest

    def _layer_times(self, kind: str, stage: int, data: int, is_last: bool) -> list[float]:
        """Seconds of each layer of one pass, in the order in which they run."""
        shape, costs = self.layout, self.costs
        rows = self.ranks[stage][data]
        slow = min((self._speed(g) for row in rows for g in row), default=1.0)
        whole = self.layers[stage]
        assert whole % shape.chunks == 0 or shape.chunks == 1
        layers = whole // shape.chunks
        sums = 2 if kind == "F" else (4 if shape.recompute == "full" else 2)
        size = 2 * self._tokens() * self.job.model.hidden
        if self.job.model.experts is not None:
            sums = sums // 2 * (1 + self._networks())
        exchange = sums * max(2 * self._ring(row, size) for row in rows)
        exchange += (
            (2 if sums and kind == "B" and shape.recompute == "full" else 1)
            * 2
            * (self._deal(stage))
        )
        attention = costs.attention_seconds / slow
        if kind == "F":
            compute, turns, head = costs.forward_seconds / slow, 1.0, costs.output_seconds / slow
        else:
            again = {"none": 0.0, "selective": costs.light_seconds, "full": costs.forward_seconds}
            rest = costs.forward_seconds - costs.attention_seconds
            compute = 2 * rest + 2.5 * costs.attention_seconds + again[shape.recompute]
            compute, turns, head = compute / slow, 2.0, 2 * costs.output_seconds / slow
            attention *= 2.5
        compute += exchange + self._context_wait(stage, data, turns, attention)
        times = self._with_gathers(kind, stage, compute, layers)
        if is_last and kind == "F":
            times[-1] += head
        if is_last and kind == "B":
            times[0] += head
        return times

    def _context_wait(self, stage: int, data: int, turns: float, attention: float) -> float:
        """Ring attention: block k is computed while block k + 1 is on its way."""
        shape, model = self.layout, self.job.model
        if shape.context == 1:
            return 0.0
        heads = max(1, model.kv_heads // shape.tensor)
        size = turns * 2 * self._tokens() * 2 * heads * model.head_dim
        longest = 0.0
        for t in range(shape.tensor):
            ring = [self.ranks[stage][data][c][t] for c in range(shape.context)]
            longest = max(longest, self._slowest_hop(ring, size))
        block = attention / shape.context
        return (shape.context - 1) * max(0.0, longest - block)

    def _with_gathers(self, kind: str, stage: int, compute: float, layers: int) -> list[float]:
        """ZeRO 2 and 3: exchanges of a layer run beside the layer before or after it."""
        shape = self.layout
        if shape.zero_stage < 2 or shape.data * shape.context == 1:
            return [compute] * layers
        load = 0.0
        if shape.zero_stage == 3:
            load += self._layer_ring(stage, 2)
        if kind == "B":
            load += self._layer_ring(stage, self.job.gradient_bytes)
        return [max(compute, load) if self.job.overlap else compute + load] * layers

    # -- the end of the step ---------------------------------------------------------------------

    def _finish(self, ends: list[list[list[float]]]) -> float:
        shape, model = self.layout, self.job.model
        table = model.vocabulary * model.hidden / shape.tensor
        passes = {0: 2, 1: 1, 2: 0, 3: 0}[shape.zero_stage]
        summed = 0.0
        for stage in range(shape.pipeline):
            marks = [
                max(times) for times in zip(*(replica[stage] for replica in ends), strict=True)
            ]
            marks.sort()
            if not self.job.overlap:
                marks = [marks[-1]] * len(marks)
            comm = 0.0
            bucket = passes * self._layer_ring(stage, self.job.gradient_bytes)
            for mark in marks:
                comm = max(comm, mark) + bucket
            tables = (stage == 0) + (stage == shape.pipeline - 1)
            once = self._stage_ring(stage, self.job.gradient_bytes * table)
            comm += tables * (2 if shape.zero_stage == 0 else 1) * once
            summed = max(summed, comm)
        return summed + self._update(summed, table)

    def _update(self, so_far: float, table: float) -> float:
        shape, job, device = self.layout, self.job, self.device
        rest, experts = self._weights_of_layer()
        shards = shape.data * shape.context if shape.zero_stage else 1
        longest = 0.0
        for stage in range(shape.pipeline):
            tables = (stage == 0) + (stage == shape.pipeline - 1)
            dense = self.layers[stage] * rest + tables * table
            routed = self.layers[stage] * experts
            # Those who hold the same experts are fewer, and share among themselves.
            held = dense / shards + routed / max(1, shards // shape.expert)
            touched = held * (job.gradient_bytes + 8 + job.optimizer_bits / 2 + 2)
            if shape.offload == "none":
                slow = min(self._update_speed(g) for t in range(shape.tensor)
                           for g in self._members(stage, t))  # fmt: skip
                seconds = touched / (0.8 * device.bytes_per_second * slow)
            else:
                over = held * (job.gradient_bytes + 2) / device.host_link
                seconds = max(over, touched / device.host_memory)
                if shape.offload == "nvme":
                    state = held * (8 + job.optimizer_bits / 2)
                    seconds = max(seconds, state / device.nvme)
                seconds = max(0.0, seconds - job.offload_overlap * so_far)
            if shape.zero_stage in (1, 2):
                seconds += self._stage_ring(stage, 2 * dense) + self._alike_ring(stage, 2 * routed)
            longest = max(longest, seconds)
        return longest

    # -- links -----------------------------------------------------------------------------------

    def _tokens(self) -> float:
        return self.layout.micro_batch * self.job.sequence_tokens / self.layout.context

    def _speed(self, gpu: int) -> float:
        return self.speed[gpu] if self.speed else 1.0

    def _update_speed(self, gpu: int) -> float:
        return self.update_speed[gpu] if self.update_speed else 1.0

    def _hop(self, a: int, b: int, size: float) -> float:
        links = self.links
        return size / float(links.bytes_per_second[a, b]) + float(links.latency_seconds[a, b])

    def _slowest_hop(self, ring: list[int], size: float) -> float:
        return max(self._hop(a, ring[(i + 1) % len(ring)], size) for i, a in enumerate(ring))

    def _ring(self, ring: list[int], size: float) -> float:
        """One pass around a ring. Hosts with several members split the message over their cards."""
        members = len(ring)
        if members == 1 or size == 0:
            return 0.0
        leaves = 0
        for i, a in enumerate(ring):
            leaves += int(self.links.host[a] != self.links.host[ring[(i + 1) % members]])
        slowest = 0.0
        for i, a in enumerate(ring):
            b = ring[(i + 1) % members]
            part = size / members
            if leaves and self.links.host[a] != self.links.host[b]:
                part /= members / leaves
            slowest = max(slowest, self._hop(a, b, part))
        return (members - 1) * slowest

    def _stage_ring(self, stage: int, size: float) -> float:
        """Over data and context, the slowest of the tensor ranks' rings."""
        shape, longest = self.layout, 0.0
        for t in range(shape.tensor):
            ring = [
                self.ranks[stage][d][c][t] for d in range(shape.data) for c in range(shape.context)
            ]
            longest = max(longest, self._ring(ring, size))
        return longest

    # -- experts ---------------------------------------------------------------------------------

    def _networks(self) -> int:
        """That one token passes in a layer."""
        part = self.job.model.experts
        return 1 if part is None else part.per_token + min(1, part.shared)

    def _weights_of_layer(self) -> tuple[float, float]:
        """Parameters on one rank: of what every replica has, and of its experts."""
        model, shape = self.job.model, self.layout
        whole = model.layer_parameters / model.layers
        if model.experts is None:
            return whole / shape.tensor, 0.0
        one = (3 if model.gated else 2) * model.hidden * model.experts.intermediate
        routed = one * model.experts.count
        return (whole - routed) / shape.tensor, routed / shape.tensor / shape.expert

    def _members(self, stage: int, t: int) -> list[int]:
        return [row[t] for replica in self.ranks[stage] for row in replica]

    def _deal(self, stage: int) -> float:
        """Tokens of a micro-batch to the ranks that hold their experts, one way."""
        shape, part = self.layout, self.job.model.experts
        if part is None or shape.expert == 1:
            return 0.0
        visits = part.per_token * self.job.expert_imbalance
        size = 2 * self._tokens() / shape.tensor * visits * self.job.model.hidden / shape.expert
        longest = 0.0
        for t in range(shape.tensor):
            everyone = self._members(stage, t)
            for first in range(0, len(everyone), shape.expert):
                group = everyone[first : first + shape.expert]
                longest = max(longest, self._all_to_all(group, size))
        return longest

    def _all_to_all(self, group: list[int], size: float) -> float:
        count = len(group)
        clock = [0.0] * count
        for turn in range(1, count):
            sent = [
                max(clock[i], clock[(i + turn) % count])
                + self._hop(group[i], group[(i + turn) % count], size)
                for i in range(count)
            ]
            clock = [max(sent[i], sent[(i - turn) % count]) for i in range(count)]
        return max(clock)

    def _layer_ring(self, stage: int, number_bytes: float) -> float:
        rest, experts = self._weights_of_layer()
        alike = self._alike_ring(stage, number_bytes * experts)
        return self._stage_ring(stage, number_bytes * rest) + alike

    def _alike_ring(self, stage: int, size: float) -> float:
        """Over the replicas that hold the same experts."""
        longest, stride = 0.0, self.layout.expert
        for t in range(self.layout.tensor if size else 0):
            everyone = self._members(stage, t)
            for first in range(stride):
                longest = max(longest, self._ring(everyone[first::stride], size))
        return longest


@dataclass(slots=True)
class _Post:
    """What is on its way between the stages of one replica; links are queues."""

    of: Simulation
    data: int
    ready: dict[tuple[str, int, int], float]
    queue: dict[tuple[int, int], float]

    def send(self, kind: str, virtual: int, micro: int, clock: float) -> None:
        """An operation has ended: its result is with the next one when the link has carried it."""
        stages = self.of.layout.pipeline
        final = stages * self.of.layout.chunks - 1
        if kind == "F" and virtual == final:
            self.ready["B", final, micro] = clock
            return
        if kind == "B" and virtual == 0:
            return
        there = virtual + 1 if kind == "F" else virtual - 1
        link = (virtual % stages, there % stages)
        begin = max(clock, self.queue.get(link, 0.0))
        self.queue[link] = begin + self.of.transfer(link[0], link[1], self.data)
        self.ready[kind, there, micro] = self.queue[link]


def pass_order(stage: int, stages: int, count: int, chunks: int) -> list[tuple[str, int, int]]:
    """What a stage does, one after the other: (pass, chunk, micro-batch)."""
    forward = [(c, m) for block in range(0, count, stages) for c in range(chunks)
               for m in range(block, min(block + stages, count))]  # fmt: skip
    backward = [(chunks - 1 - c, m) for c, m in forward]
    if chunks == 1:
        forward = backward = [(0, m) for m in range(count)]
        warm = min(stages - stage - 1, count)
    else:
        warm = min(2 * (stages - stage - 1) + (chunks - 1) * stages, len(forward))
    order = [("F", *forward[i]) for i in range(warm)]
    for i in range(len(forward) - warm):
        order.append(("F", *forward[warm + i]))
        order.append(("B", *backward[i]))
    order += [("B", *backward[i]) for i in range(len(forward) - warm, len(backward))]
    return order
