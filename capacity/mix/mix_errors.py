"""What can go wrong when a GPU mix is asked for.

InputError (wattpack.errors)
└── InfeasibleMix          no mix keeps every constraint: carries the conflicting ones
DeadlineExceededError      no mix was found in time, and none was proved impossible
"""

from __future__ import annotations

from wattpack.errors import InputError


class InfeasibleMix(InputError):
    """No mix serves the demand; loosen one of the named constraints or lower one of the demands.

    Args:
        constraints: Constraints that cannot be kept together; without any one of them they can.
        demands: Buckets whose demand is part of the conflict.
        is_smallest: Whether it is proved that no smaller set of constraints conflicts.
    """

    def __init__(
        self, constraints: tuple[str, ...], demands: tuple[str, ...], is_smallest: bool
    ) -> None:
        self.constraints, self.demands, self.is_smallest = constraints, demands, is_smallest
        named = "; ".join(constraints) or "what the offered replicas can do"
        size = "" if is_smallest else " (a smaller set may exist)"
        super().__init__(
            "demand", f"what can be served within: {named}{size}", ", ".join(demands) or "all"
        )
