"""A rehearsal desk whose orders are worked at by a process beside the forecaster."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forecasting.app.memory_file import read_state, write_state
from forecasting.app.model_choice import Models
from forecasting.engine_memory import EngineMemory
from forecasting.engine_question import Beside, Shape
from forecasting.forecast_engine import Engine
from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.round.rehearsal_desk import Rehearsal, RehearsalOrder
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import History, SeriesId
from forecasting.side_training.side_process import SideProcess
from forecasting.tiers.tier_sets import TierSet
from wattpack.clock import Clock
from wattpack.errors import InputError

DEADLINE_SECONDS: Final = 3600.0
"""500 series of ten days with all models take about ten minutes of one core."""

CHILD: Final = (sys.executable, "-m", "forecasting.app.rehearsal_child")

_ORDER, _HISTORY, _BASE, _LEARNED = "order.json", "history.npz", "base.npz", "learned.npz"
_NO_MODELS: Final = TierSet(lambda _: (), lambda _: ())

log = logging.getLogger(__name__)


class RehearsalProcess:
    """``RehearsalDesk`` in a child process.

    Args:
        clock: Time.
        models: That go through histories.
        plug_ins: Entry points that do, too.
        deadline_seconds: After which a rehearsal is ended.
        command: What is run, followed by the folder; tests run something else.
    """

    def __init__(
        self,
        clock: Clock,
        models: Models,
        plug_ins: Sequence[str] = (),
        deadline_seconds: float = DEADLINE_SECONDS,
        command: Sequence[str] = CHILD,
    ) -> None:
        self._models: Models = models
        self._plug_ins = tuple(plug_ins)
        self._side = SideProcess(clock, deadline_seconds, command, "rehearsal")
        self._order: RehearsalOrder | None = None

    @property
    def order(self) -> RehearsalOrder | None:
        """What is worked at, or was and is not taken yet."""
        return self._order

    @property
    def is_over(self) -> bool:
        """Whether ``take`` has something to give."""
        return self._side.is_over

    def submit(self, order: RehearsalOrder) -> bool:
        """Begin; False if another order is there, or no process can be started."""
        told = {"models": self._models, "plugIns": list(self._plug_ins)}
        if self._order is not None or not self._side.begin(lambda f: write_order(f, order, told)):
            return False
        self._order = order
        log.info("%d histories are gone through beside the rounds", len(order.history.series))
        return True

    def take(self) -> Rehearsal | None:
        """The order that is over, once; one past its deadline has failed."""
        order, folder = self._order, self._side.left()
        if order is None or (folder is None and self._side.is_begun):
            return None
        self._order = None
        if folder is None:
            return Rehearsal(order, None)
        try:
            learned = read_memory(folder / _LEARNED, order.shape)
        except (InputError, OSError, KeyError) as error:
            self._side.fail(f"a rehearsal left nothing to read: {error}")
            return Rehearsal(order, None)
        self._side.done()
        return Rehearsal(order, learned)

    def close(self) -> None:
        """End what runs."""
        self._order = None
        self._side.close()


def write_order(folder: Path, order: RehearsalOrder, models: dict[str, Any]) -> None:
    """What the child needs, in files."""
    shape, history = order.shape, order.history
    arrays: dict[str, np.ndarray] = {}
    header = {
        **models,
        "shape": [shape.step_seconds, shape.horizon, list(shape.levels)],
        "series": list(history.series),
        "pools": {name: list(pool) for name, pool in order.pools.items()},
        "parents": dict(order.beside.parents),
        "asides": _asides(order.beside.asides, arrays),
        "untilSeconds": history.until_seconds,
        "stepSeconds": history.step_seconds,
    }
    (folder / _ORDER).write_text(json.dumps(header), encoding="utf-8")
    values = np.asarray(history.values, dtype=np.float64)
    np.savez(folder / _HISTORY, allow_pickle=False, values=values, **arrays)
    write_memory(folder / _BASE, order.shape, order.base)


def _asides(asides: Mapping[SeriesId, DrawAside], arrays: dict[str, np.ndarray]) -> list[SeriesId]:
    """Whose asides go into ``arrays``; what was placed since the data's end is no past."""
    for i, aside in enumerate(asides.values()):
        arrays[f"{i}/load"] = aside.load_watts
        if aside.held_share is not None:
            arrays[f"{i}/held"] = aside.held_share
    return list(asides)


def read_order(folder: Path) -> tuple[RehearsalOrder, dict[str, Any]]:
    """What was written, and which models are to be used."""
    header = json.loads((folder / _ORDER).read_text(encoding="utf-8"))
    step_seconds, horizon, levels = header["shape"]
    shape = Shape(step_seconds, horizon, tuple(levels))
    series = [SeriesId(name) for name in header["series"]]
    with np.load(folder / _HISTORY, allow_pickle=False) as stored:
        arrays = dict(stored)
    parents = {SeriesId(part): SeriesId(whole) for part, whole in header["parents"].items()}
    asides = {
        SeriesId(name): DrawAside(arrays[f"{i}/load"], arrays.get(f"{i}/held"))
        for i, name in enumerate(header["asides"])
    }
    order = RehearsalOrder(
        shape=shape,
        history=History(series, arrays["values"], header["untilSeconds"], header["stepSeconds"]),
        pools={SeriesId(name): (space, kind) for name, (space, kind) in header["pools"].items()},
        base=read_memory(folder / _BASE, shape),
        beside=Beside(parents, asides),
    )
    return order, header


def write_learned(folder: Path, shape: Shape, learned: EngineMemory) -> None:
    """What the child hands back, whole or not at all."""
    write_memory(folder / _LEARNED, shape, learned)


def write_memory(path: Path, shape: Shape, memory: EngineMemory) -> None:
    """A memory in the form of the forecaster's state."""
    group = (shape.step_seconds, shape.horizon, shape.levels)
    write_state(path, ForecasterState(_NO_MODELS, {group: Engine(shape, (), memory)}))


def read_memory(path: Path, shape: Shape) -> EngineMemory:
    """A memory that was written so.

    Raises:
        InputError: it is damaged, or not there.
        KeyError: it is of another group.
    """
    state = read_state(path, ForecasterState(_NO_MODELS))
    return state.engines[shape.step_seconds, shape.horizon, shape.levels].memory
