"""What servers may draw beside their GPUs while limits hold these down: for I1 alone.

Regulators, CPUs and NICs draw more the more GPUs draw. A site that measured it may declare a line,
and I1 counts a server at the smaller of it and the declared worst. Fans belong to what the line
begins with: they follow the boards by minutes, and the air by days. I2 and every estimate keep the
worst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattpack.power.domain_tree import BOARD_GAIN_SPREAD, OVERSHOOT_RATIO, FloatArray, IntArray

__all__ = ["HostLines", "host_lines"]


@dataclass(frozen=True, slots=True)
class HostLines:
    """Worst draw of each server without its GPUs over what these draw, DC-equivalent.

    Attributes:
        at_rest_watts: With GPUs that draw nothing; infinite for no line, (n_nodes,).
        per_gpu_watt: More for each watt of its GPUs, (n_nodes,).
    """

    at_rest_watts: FloatArray
    per_gpu_watt: FloatArray

    def worst_watts(
        self, node_worst_watts: FloatArray, caps_watts: FloatArray, node_of_gpu: IntArray
    ) -> FloatArray:
        """The most that each server draws without its GPUs at these caps, (n_nodes,).

        GPUs draw their caps with overshoot and the spread of one server's boards.

        Args:
            node_worst_watts: Declared whatever GPUs do, never exceeded, (n_nodes,).
            caps_watts: (n_gpus,).
            node_of_gpu: (n_gpus,).
        """
        n_nodes = len(node_worst_watts)
        boards = np.maximum(np.bincount(node_of_gpu, minlength=n_nodes), 1)
        caps = np.bincount(node_of_gpu, caps_watts, n_nodes)
        gpu_watts = caps * OVERSHOOT_RATIO * (1.0 + BOARD_GAIN_SPREAD / np.sqrt(boards))
        line = self.at_rest_watts + self.per_gpu_watt * gpu_watts
        return np.asarray(np.minimum(node_worst_watts, line), dtype=np.float64)


def host_lines(
    declared: list[tuple[float, float] | None], dc_per_ac: FloatArray
) -> HostLines | None:
    """The lines of servers; None where nobody declared one.

    Args:
        declared: AC watts at rest and AC watts a GPU watt of each server, None for no line.
        dc_per_ac: At each server's breaker, (n_nodes,).
    """
    if not any(declared):
        return None
    lines = np.array([line or (np.inf, 0.0) for line in declared], dtype=np.float64)
    return HostLines(lines[:, 0] * dc_per_ac, lines[:, 1] * dc_per_ac)
