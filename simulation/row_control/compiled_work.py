"""A step of random work compiled: ``RandomWork``, the same to the last bit."""

from __future__ import annotations

from typing import Any, NamedTuple

from simulation.row_control.work import Bools, Floats, Integers
from wattpack.compiled import compiled


class WorkConstants(NamedTuple):
    """Of boards, (n_gpus,), and of units of boards that move together, (n_units,).

    Attributes:
        unit_of_gpu: (n_gpus,).
        low_curve, high_curve: Of each board's phases, (n_gpus,).
        low_clock_knee: Clock share from which the quieter phase slows, (n_gpus,).
        context_watts, range_watts: Least draw, and what full activity adds, (n_gpus,).
        speed: ``ShareCurves.speed``, (n_curves, points).
        trains: Whether the unit is a gang, (n_units,).
        works: 1, or 0 for a unit that idles, (n_units,).
        step_seconds: Of gangs at full speed, (n_units,).
        dip_ratio, dip_share: Of a gang's exchange.
    """

    unit_of_gpu: Integers
    low_curve: Integers
    high_curve: Integers
    low_clock_knee: Floats
    context_watts: Floats
    range_watts: Floats
    speed: Floats
    trains: Bools
    works: Floats
    step_seconds: Floats
    dip_ratio: float
    dip_share: float


@compiled
def _curve_speed(curves: Floats, curve: int, low: int, above: float) -> float:
    below = curves[curve, low]
    return float(below + above * (curves[curve, low + 1] - below))


@compiled
def _dipped(steps: float, dip: float) -> float:
    """How much of this many steps was exchange, in steps."""
    whole = float(int(steps))
    return float(whole * dip + max(0.0, steps - whole - (1.0 - dip)))


@compiled
def unit_speeds(
    held: tuple[Floats, Floats, Bools],
    mix: Floats,
    into: Floats,
    *fields: Any,  # noqa: ANN401  arrays and numbers
) -> None:
    """Speed of each unit's slowest board, (n_units,).

    Args:
        held: Drawn shares, clock shares and who is alive, (n_gpus,) each.
        mix: Share of time in the hotter phase, (n_units,).
        into: What is returned.
        fields: Of ``WorkConstants``.
    """
    own = WorkConstants(*fields)
    drawn_share, clock_share, alive = held
    unit_of_gpu, knee, curves = own.unit_of_gpu, own.low_clock_knee, own.speed
    low_curve, high_curve = own.low_curve, own.high_curve
    last = curves.shape[1] - 1
    locked = False
    for i in range(len(clock_share)):
        locked |= clock_share[i] < 1.0
    into[:] = 2.0
    for i in range(len(unit_of_gpu)):
        place = min(max(drawn_share[i], 0.0), 1.0) * last
        low = min(int(place), last - 1)
        slow = _curve_speed(curves, low_curve[i], low, place - low)
        fast = _curve_speed(curves, high_curve[i], low, place - low)
        if locked:
            slow = slow * min(1.0, clock_share[i] / knee[i])
            fast = fast * min(1.0, clock_share[i])
        unit = unit_of_gpu[i]
        speed = slow + mix[unit] * (fast - slow)
        into[unit] = min(into[unit], speed if alive[i] else 0.0)


@compiled
def go_on(
    seconds: float,
    moment: tuple[Floats, Floats],
    units: tuple[Floats, Floats, Floats],
    wanted: Floats,
    *fields: Any,  # noqa: ANN401  arrays and numbers
) -> None:
    """Work for a step at speeds that are known.

    Args:
        seconds: The step's length.
        moment: Activity of units and noise of boards in it.
        units: Speed of each unit, share of time in the hotter phase and progress, (n_units,) each;
            the last two are changed.
        wanted: What boards want to draw, (n_gpus,); what is returned.
        fields: Of ``WorkConstants``.
    """
    own = WorkConstants(*fields)
    activity, noise = moment
    speed, mix, progress = units
    trains, works, step_seconds = own.trains, own.works, own.step_seconds
    level = activity.copy()
    for k in range(len(speed)):
        if trains[k]:
            begin = progress[k] / step_seconds[k]
            passed = max(speed[k] * seconds / step_seconds[k], 1e-6)
            dipped = _dipped(begin + passed, own.dip_share) - _dipped(begin, own.dip_share)
            level[k] = 1.0 - (1.0 - own.dip_ratio) * (dipped / passed)
        mix[k] = min(max(2.0 * level[k] - 1.0, 0.0), 1.0)
        progress[k] += speed[k] * works[k] * seconds
    unit_of_gpu, context, full = own.unit_of_gpu, own.context_watts, own.range_watts
    for i in range(len(wanted)):
        wanted[i] = context[i] + full[i] * (level[unit_of_gpu[i]] * noise[i])
