"""The inference row as work that a row under a power policy does (``simulation.row_control``).

Boards of one server serve one model together: the one that is held back most sets the pace. A power
limit slows prompts and decode as capacity's curves of an A100 say; a locked clock slows prompts as
the clock and decode by ``DECODE_CLOCK_SHARE`` of that.
"""

from __future__ import annotations

import copy
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from capacity.capacity_table import ProfileTable, class_index, throughput
from capacity.phase_times import ServerTimes, bloom_on_a100
from capacity.profile_library import shipped_library
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.compiled_servers import fastest_servers
from simulation.inference_row.compiled_speeds import SpeedCurves, server_speeds
from simulation.inference_row.request_classes import POLCA_CLASSES, RequestClass
from simulation.inference_row.row_power import GPUS_PER_SERVER
from wattpack.compiled import AVAILABLE
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

DECODE_CLOCK_SHARE = 0.25
"""Share of decode that waits for the clock: POLCA publishes at most about 7 % less speed for 20 %
less peak power, reached at 1110 of 1410 MHz: 0.07 / (1410 / 1110 - 1), read second-hand."""


class HeldBoards(Protocol):
    """How boards are held when a step begins (``row_control.work.Held``), (n_gpus,) each."""

    @property
    def drawn_share(self) -> Floats:
        """Watts drawn over watts wanted at the present clock."""
        ...

    @property
    def clock_share(self) -> Floats:
        """Locked clock over highest clock, 1 without a lock."""
        ...

    @property
    def alive(self) -> Bools:
        """Whether the server has power and runs."""
        ...


class InferenceWork:
    """Servers of 8 boards that answer requests; board i is of server i // 8.

    Attributes:
        servers: Queues and accounts of the requests.

    Args:
        requests: All that will come, times since Monday, midnight.
        class_of_server: (n_servers,).
        begin_seconds: Time since Monday, midnight, at which the run begins.
        classes: Kinds of requests.
        times: What a server takes and draws.
    """

    def __init__(
        self,
        requests: RowRequests,
        class_of_server: Integers,
        begin_seconds: float,
        classes: tuple[RequestClass, ...] = POLCA_CLASSES,
        times: ServerTimes | None = None,
    ) -> None:
        times = times or bloom_on_a100()
        self.servers = fastest_servers(requests, len(class_of_server), begin_seconds, times)
        of_class = np.array([one.priority for one in classes], dtype=np.int64)
        self._priority = np.repeat(of_class[class_of_server], GPUS_PER_SERVER)
        self._spent_seconds = 0.0
        self._table = ProfileTable.of([shipped_library().find(times.gpu_model)])
        self._kernels = class_index(["prefill", "decode"])
        self._curves = SpeedCurves.of(self._table, self._kernels)

    @property
    def priority(self) -> Integers:
        """Of each board: 0 low, 1 high, (n_gpus,)."""
        return self._priority

    def step(self, begin_seconds: float, seconds: float, held: HeldBoards) -> Floats:
        """Let the servers work for a step on boards held so; the watts wanted, (n_gpus,).

        Raises:
            InputError: for a step that does not begin where the last one ended.
        """
        if abs(begin_seconds - self._spent_seconds) > 1e-6:
            raise InputError("begin_seconds", f"{self._spent_seconds:g} s", begin_seconds)
        self._spent_seconds += seconds
        prompt, decode = self._speeds(held)
        watts = self.servers.step(seconds, prompt, decode).watts
        return np.repeat(watts, GPUS_PER_SERVER)

    def anew(self, *, copied: bool = False) -> InferenceWork:
        """The same servers for a next run, whose time begins at 0; ``copied``: with own queues."""
        next_run = copy.copy(self)
        next_run._spent_seconds = 0.0
        if copied:
            next_run.servers = copy.deepcopy(self.servers)
        return next_run

    def done(self) -> Floats:
        """Work done so far by the server of each board, full-speed seconds, (n_gpus,)."""
        return np.repeat(self.servers.work_seconds, GPUS_PER_SERVER)

    def _speeds(self, held: HeldBoards) -> tuple[Floats, Floats]:
        """Speed over full speed of each server's prompts and decode, (n_servers,) each."""
        if not AVAILABLE:
            return self.speeds_in_numpy(held)
        into = np.empty((2, len(self._priority) // GPUS_PER_SERVER))
        boards = (held.drawn_share, held.clock_share, held.alive)
        server_speeds(boards, DECODE_CLOCK_SHARE, into, *self._curves)
        return into[0], into[1]

    def speeds_in_numpy(self, held: HeldBoards) -> tuple[Floats, Floats]:
        """The same as are used where numba is not there: the form to read, and the oracle."""
        drawn = held.drawn_share.reshape(-1, GPUS_PER_SERVER).min(axis=1)
        clock = held.clock_share.reshape(-1, GPUS_PER_SERVER).min(axis=1)
        alive = held.alive.reshape(-1, GPUS_PER_SERVER).all(axis=1)
        prompt, decode = (self._at_share(kernel, drawn) for kernel in self._kernels)
        decode = decode / (1.0 - DECODE_CLOCK_SHARE + DECODE_CLOCK_SHARE / clock)
        return np.where(alive, prompt * clock, 0.0), np.where(alive, decode, 0.0)

    def _at_share(self, kernel: np.intp, drawn_share: Floats) -> Floats:
        n = len(drawn_share)
        model, kernels = np.zeros(n, dtype=np.intp), np.full(n, kernel, dtype=np.intp)
        full = self._table.p50_watts[model, kernels]
        held = throughput(self._table, model, kernels, np.clip(drawn_share, 0.0, 1.0) * full)
        return np.asarray(
            np.minimum(1.0, held / throughput(self._table, model, kernels, full)), dtype=np.float64
        )
