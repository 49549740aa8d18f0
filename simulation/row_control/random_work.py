"""Random work of mixed classes on a row, for fault runs: what boards want, and how far work came.

    servers ── serving: replicas of boards that decode together, three services, high and low
            ── training: gangs of whole servers, steps of seconds with a dip, mostly low
            ── batch: single boards with a level that jumps, low
            ── idle: an idle context

What a board wants does not depend on how boards are held, but for the phase of gangs, which move
with their slowest board. Watts that a limit took away are work that is lost: nothing queues. So two
policies see the same arrivals, and an oracle can be exact (``oracle``). Speeds under a limit are
capacity's (``share_curves``).

Everything here is drawn from the seed; shares, levels and swings are assumed. The levels are chosen
so that 52 servers on a row rated for 40 exceed 1.00 uncapped in about half of the runs (a test says
so), as 1.3 times a published peak of 0.79 does (POLCA, arXiv 2308.12908).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulation.row_control.activity import Activity
from simulation.row_control.compiled_work import WorkConstants, go_on, unit_speeds
from simulation.row_control.share_curves import ShareCurves
from simulation.row_control.work import Held
from simulation.row_control.work_layout import WorkKind, WorkShape, lay_out
from wattpack.compiled import AVAILABLE
from wattpack.settings import Settings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Share = Annotated[float, Field(ge=0, le=1)]

BEYOND_LIMIT: Final = 1.05
"""What every board wants over its default limit after a step of everything."""


class RandomWorkSettings(Settings):
    """How much of which work; all assumed."""

    serving_level_lowest: Annotated[Share, Field(description="Mean activity of serving, least")] = (
        0.60
    )
    serving_level_highest: Annotated[Share, Field(description="Mean activity, most")] = 0.90
    training_share: Annotated[Share, Field(description="Share of servers in gangs")] = 0.2
    batch_share: Annotated[Share, Field(description="Share of servers with batch work")] = 0.15
    idle_share: Annotated[Share, Field(description="Share of servers without work")] = 0.04
    drift_ratio: Annotated[Share, Field(description="Spread of what all services share")] = 0.05
    drift_seconds: Annotated[float, Field(gt=0, description="Its time constant")] = 90.0
    swing_ratio: Annotated[Share, Field(description="Spread of each service's bursts")] = 0.05
    swing_seconds: Annotated[float, Field(gt=0, description="Their time constant")] = 6.0
    replica_ratio: Annotated[Share, Field(description="Spread of each replica's own load")] = 0.12
    replica_seconds: Annotated[float, Field(gt=0, description="Its time constant")] = 2.0
    batch_jump_seconds: Annotated[
        float, Field(gt=0, description="Mean time between two levels of a batch board")
    ] = 90.0
    batch_lowest_ratio: Annotated[Share, Field(description="Lowest level of a batch board")] = 0.7
    board_noise_ratio: Annotated[Share, Field(description="Each board, each cell of 0.25 s")] = 0.01
    dip_ratio: Annotated[Share, Field(description="A gang's draw in its exchange")] = 0.5
    dip_share: Annotated[Share, Field(description="Share of a step in the exchange")] = 0.15
    everything_steps_at_seconds: Annotated[
        float | None, Field(ge=0, description="From then on every board wants 1.05 of its limit")
    ] = None


@dataclass(frozen=True, slots=True)
class Worth:
    """What a watt buys in the step that was returned last, by unit of boards that move together.

    Attributes:
        unit_of_gpu: (n_gpus,).
        curves: Speeds by share.
        low_curve: Curve of a unit's quieter phase, (n_units,).
        high_curve: Curve of its hotter phase, (n_units,).
        mix: Share of time in the hotter phase, (n_units,).
        rate: Full-speed seconds a second at a share of 1, all boards together, (n_units,).
        priority: 0 low, 1 high, (n_units,).
    """

    unit_of_gpu: Integers
    curves: ShareCurves
    low_curve: Integers
    high_curve: Integers
    mix: Floats
    rate: Floats
    priority: Integers


class RandomWork:
    """Work of one run; a ``RowWork``.

    Args:
        shape: Servers, boards, racks and types.
        curves: Speeds by share; an oracle's own copy takes them ``hulled``.
        seed: Of everything drawn.
        settings: How much of which work.

    Attributes:
        priority: 0 low, 1 high, (n_gpus,).
        gang: Number of the training gang, -1 for none, (n_gpus,).
        layout: Who does what.
    """

    def __init__(
        self,
        shape: WorkShape,
        curves: ShareCurves,
        seed: int,
        settings: RandomWorkSettings | None = None,
    ) -> None:
        self.settings = settings or RandomWorkSettings()
        generator = np.random.default_rng((seed, 0x0B0A2D))
        layout = lay_out(shape, self.settings, generator)
        self.layout = layout
        self.priority = layout.priority[layout.unit_of_gpu]
        self.gang = layout.gang[layout.unit_of_gpu]
        self._curves = curves
        self._shape = shape
        self._activity = Activity(self.settings, layout, generator)
        self._step_seconds = generator.uniform(4.0, 12.0, layout.n_units)
        spread = generator.uniform(0.98, 1.0, shape.n_gpus)
        hot = curves.hot_watts[layout.high_curve][layout.unit_of_gpu]
        idle = layout.kind[layout.unit_of_gpu] == WorkKind.IDLE
        self._range_watts = np.where(idle, 0.0, hot * spread - shape.context_watts)
        self._progress = generator.uniform(0.0, 1.0, layout.n_units) * self._step_seconds
        self._begun = self._progress.copy()
        self._trains = layout.kind == WorkKind.TRAINING
        self._works = np.where(layout.kind == WorkKind.IDLE, 0.0, 1.0)
        self._order = np.argsort(layout.unit_of_gpu, kind="stable")
        self._first = np.searchsorted(layout.unit_of_gpu[self._order], np.arange(layout.n_units))
        self._low_curve = layout.low_curve[layout.unit_of_gpu]
        self._high_curve = layout.high_curve[layout.unit_of_gpu]
        self._speed = np.ones(layout.n_units)
        self._wanted = shape.context_watts.copy()
        self._mix = np.zeros(layout.n_units)
        self._constants = WorkConstants(
            layout.unit_of_gpu, self._low_curve, self._high_curve,
            layout.low_clock_knee[layout.unit_of_gpu], shape.context_watts, self._range_watts,
            curves.speed, self._trains, self._works, self._step_seconds, self.settings.dip_ratio,
            self.settings.dip_share,
        )  # fmt: skip

    def step(self, begin_seconds: float, seconds: float, held: Held) -> Floats:
        """Work for a step; the watts that boards would draw in it unlimited, (n_gpus,)."""
        (self.step_compiled if AVAILABLE else self.step_in_numpy)(begin_seconds, seconds, held)
        at = self.settings.everything_steps_at_seconds
        if at is not None and begin_seconds >= at:
            self._wanted = BEYOND_LIMIT * self._shape.default_limit_watts
            self._mix = np.ones(self.layout.n_units)
        return self._wanted

    def step_compiled(self, begin_seconds: float, seconds: float, held: Held) -> None:
        """What ``step_in_numpy`` does."""
        boards = (held.drawn_share, held.clock_share, held.alive)
        unit_speeds(boards, self._mix, self._speed, *self._constants)
        self._wanted, self._mix = np.empty(self._shape.n_gpus), np.empty(self.layout.n_units)
        go_on(
            float(seconds), self._activity.at(begin_seconds + 0.5 * seconds),
            (self._speed, self._mix, self._progress), self._wanted, *self._constants,
        )  # fmt: skip

    def step_in_numpy(self, begin_seconds: float, seconds: float, held: Held) -> None:
        """Work for a step: the form to read, the oracle, and what runs without numba."""
        self._speed = self._speeds(held)
        activity, noise = self._activity.at(begin_seconds + 0.5 * seconds)
        level = np.where(self._trains, self._gang_level(seconds), activity)
        self._mix = np.minimum(np.maximum(2.0 * level - 1.0, 0.0), 1.0)
        self._progress += self._speed * self._works * seconds
        share = level.take(self.layout.unit_of_gpu) * noise
        self._wanted = self._shape.context_watts + self._range_watts * share

    def done(self) -> Floats:
        """Work so far by board in full-speed seconds, (n_gpus,)."""
        return np.asarray((self._progress - self._begun)[self.layout.unit_of_gpu])

    def worth(self) -> Worth:
        """What a watt buys in the step that was returned last."""
        layout = self.layout
        return Worth(
            layout.unit_of_gpu,
            self._curves,
            layout.low_curve,
            layout.high_curve,
            self._mix,
            self._works * layout.boards,
            layout.priority,
        )

    def _gang_level(self, seconds: float) -> Floats:
        """Mean draw of a gang over a step, over its full draw, (n_units,)."""
        begin = self._progress / self._step_seconds
        passed = np.maximum(self._speed * seconds / self._step_seconds, 1e-6)
        dipped = (self._dipped(begin + passed) - self._dipped(begin)) / passed
        return np.asarray(1.0 - (1.0 - self.settings.dip_ratio) * dipped)

    def _dipped(self, steps: Floats) -> Floats:
        """How much of this many steps was exchange, in steps."""
        whole = np.floor(steps)
        dip = self.settings.dip_share
        return np.asarray(whole * dip + np.maximum(0.0, steps - whole - (1.0 - dip)))

    def _speeds(self, held: Held) -> Floats:
        """Speed of each unit's slowest board, (n_units,)."""
        layout = self.layout
        of_gpu = layout.unit_of_gpu
        slow, fast = self._curves.at_both(self._low_curve, self._high_curve, held.drawn_share)
        if (held.clock_share < 1.0).any():
            knee = layout.low_clock_knee[of_gpu]
            slow = slow * np.minimum(1.0, held.clock_share / knee)
            fast = fast * np.minimum(1.0, held.clock_share)
        speed = slow + self._mix.take(of_gpu) * (fast - slow)
        if not held.alive.all():
            speed = np.where(held.alive, speed, 0.0)
        return np.minimum.reduceat(speed.take(self._order), self._first)
