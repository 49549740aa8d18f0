"""What can go wrong when a training plan is asked for.

InputError (wattpack.errors)
└── InfeasibleTraining   no layout keeps every constraint: carries the conflicting ones
"""

from __future__ import annotations

from wattpack.errors import InputError


class InfeasibleTraining(InputError):
    """No layout exists; loosen one of the named constraints.

    Args:
        constraints: Cannot be kept together; without any one of them a layout exists.
        detail: How far off the nearest layout is, in words with figures.
    """

    def __init__(self, constraints: tuple[str, ...], detail: str) -> None:
        self.constraints, self.detail = constraints, detail
        super().__init__("layout", f"one within: {'; '.join(constraints)}", detail)
