"""Which batches need not be sent: the node already holds these caps and its lease has long to run.

A lease is renewed before a quarter of it has passed. Whatever is new, locked, unconfirmed or in
doubt is sent at every tick: quiet never delays a change (I3: skipping only lets leases end).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.commitments import Commitments
from controller.tick_values import Commands, Tick, Topology
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray

__all__ = ["quieted"]

# With regular ticks of 1 s and leases of 3.5 s a node hears at each of them: with reports that are
# answered on arrival, two lost renewals in a row still leave it its lease. Ticks between, for a
# large rise, are the quiet ones.
_RENEW_SHARE = 0.2
_SAME_WATTS = 0.5


def quieted(tick: Tick, sent: Commitments, commands: Commands) -> Commands:
    """The commands without batches that would bring a node nothing."""
    topology, observed = tick.topology, tick.observations
    renew_ns = round(_RENEW_SHARE * tick.lease_ns)
    young = (sent.node_sent_ns >= 0) & (tick.now_ns - sent.node_sent_ns < renew_ns)
    if not some(young):
        return commands
    news = np.abs(commands.cap_watts - sent.node_caps_watts) > _SAME_WATTS
    news |= (commands.lock_max_mhz != 0) | (commands.guaranteed_watts > 0.0)
    # A report that came after a batch and does not confirm it: the batch was lost or had no effect.
    answered = observed.node_received_ns > sent.node_sent_ns
    by_node = topology.node_of_gpu
    unconfirmed = observed.gpu_confirmed_sequence < sent.node_sequence.take(by_node)
    news |= unconfirmed & answered.take(by_node)
    return replace(commands, send=commands.send & ~(young & ~_any_gpu(topology, news)))


def _any_gpu(topology: Topology, gpus: BoolArray) -> BoolArray:
    """Nodes with at least one of the GPUs, (n_nodes,)."""
    found = np.zeros(topology.n_nodes, dtype=np.bool_)
    found[topology.node_of_gpu[gpus]] = True
    return found
