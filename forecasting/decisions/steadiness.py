"""Decisions that do not flutter: a dead band, a hold, and limits per window of wall-clock time.

Limits count changes in the last seconds, never evaluations: Karpenter's budget per cycle let churn
rise when cycles became faster (kubernetes-sigs/karpenter issue 2909).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from forecasting.decisions.decision import Decision
from wattpack.errors import InputError
from wattpack.units import require_number


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """How steady an amount has to be.

    Attributes:
        dead_band: Changes of at most this share of the amount in force are not made.
        hold_seconds: The cautious direction's opposite is taken only once every wish of so long a
            time would have allowed it.
        window_seconds: Of the limits below.
        most_changes: In any window, those in the direction that is safe left out; None: any number.
        most_moved: Sum of changes in any window, in the amount's unit; None: any.
        urgent: The direction that is safe, and neither held nor limited: ``up`` for what is kept
            ready, ``down`` for what is promised, None if both are free to wait.
    """

    dead_band: float = 0.0
    hold_seconds: float = 0.0
    window_seconds: float = 3600.0
    most_changes: int | None = None
    most_moved: float | None = None
    urgent: Literal["up", "down"] | None = None

    def __post_init__(self) -> None:
        require_number("limits.deadBand", self.dead_band, minimum=0, maximum=1)
        require_number("limits.holdSeconds", self.hold_seconds, minimum=0)
        require_number("limits.windowSeconds", self.window_seconds, exclusive_minimum=0)
        for name, value in (("mostChanges", self.most_changes), ("mostMoved", self.most_moved)):
            if value is not None:
                require_number(f"limits.{name}", value, minimum=0)


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What was done lately.

    Attributes:
        amount: In force; None before the first decision.
        changes: Time and size of the changes within the window, negative where it fell.
        wishes: Time and amount of wishes within the hold.
        at_seconds: Of the newest decision.
    """

    amount: float | None = None
    changes: tuple[tuple[float, float], ...] = ()
    wishes: tuple[tuple[float, float], ...] = ()
    at_seconds: float = field(default=-math.inf)


def steadied(
    wish: Decision, now_seconds: float, state: SteadyState, limits: ChangeLimits
) -> tuple[Decision, SteadyState]:
    """The decision to carry out now, and what to remember.

    Args:
        wish: What the forecast asks for.
        now_seconds: Monotonic or Unix time, not before the last call's.
        state: From the call before.
        limits: How steady.

    Raises:
        InputError: a time that goes backwards.
    """
    if now_seconds < state.at_seconds:
        raise InputError("nowSeconds", f"at least {state.at_seconds:g}", now_seconds)
    changes = tuple(c for c in state.changes if c[0] > now_seconds - limits.window_seconds)
    kept = tuple(w for w in state.wishes if w[0] > now_seconds - limits.hold_seconds)
    wishes = (*kept, (now_seconds, wish.amount))
    made = wish if state.amount is None else _made(wish, state.amount, wishes, changes, limits)
    moved = 0.0 if state.amount is None else made.amount - state.amount
    if moved:
        changes = (*changes, (now_seconds, moved))
    return made, SteadyState(made.amount, changes, wishes, now_seconds)


def _made(
    wish: Decision,
    amount: float,
    wishes: tuple[tuple[float, float], ...],
    changes: tuple[tuple[float, float], ...],
    limits: ChangeLimits,
) -> Decision:
    if limits.urgent == _direction(wish.amount - amount) and wish.amount != amount:
        return wish
    held = _held(wish.amount, amount, [w for _, w in wishes])
    if held == amount != wish.amount:
        why = f"held at {amount:.6g}, since it was wished within {limits.hold_seconds:g} s"
        return wish.because("hold", amount, why)
    if abs(held - amount) <= limits.dead_band * abs(amount):
        if held == amount:
            return wish
        return wish.because("hold", amount, f"{amount:.6g} is near enough")
    return _limited(wish, held, amount, changes, limits)


def _direction(moved: float) -> Literal["up", "down"]:
    return "up" if moved > 0 else "down"


def _held(wish: float, amount: float, wishes: list[float]) -> float:
    """As far towards the wish as every wish of the hold allows."""
    if wish > amount:
        return max(amount, min(wishes))
    return min(amount, max(wishes))


def _limited(
    wish: Decision,
    target: float,
    amount: float,
    changes: tuple[tuple[float, float], ...],
    limits: ChangeLimits,
) -> Decision:
    window = f"{limits.window_seconds:g} s"
    counted = sum(_direction(size) != limits.urgent for _, size in changes)
    if limits.most_changes is not None and counted >= limits.most_changes:
        told = f"kept at {amount:.6g}: {counted} changes in the last {window}"
        return wish.because("rate", amount, told)
    room = math.inf
    if limits.most_moved is not None:
        room = max(0.0, limits.most_moved - sum(abs(size) for _, size in changes))
    if abs(target - amount) > room:
        limited = amount + math.copysign(room, target - amount)
        told = f"moved to {limited:.6g} only: {limits.most_moved:g} in {window} is the most"
        return wish.because("rate", limited, told)
    if target != wish.amount:
        told = f"moved to {target:.6g}, as far as {limits.hold_seconds:g} s of wishes allow"
        return wish.because("hold", target, told)
    return wish
