"""Launch parameters of the benchmark's own kernels: tried once from a short list, then cached.

Exhaustive tuning is wasted: the published caches of one attention kernel hold 79 keys and 4
winners after 19 hours (triton-dejavu data of the vLLM Triton backend). So a short list, a budget
in seconds, and a cache that is valid only for this GPU, these versions and these sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from capacity.torch_backend.recorded_launch import HostAndDevice, RecordedLaunch, Repeats, Work
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

Config = tuple[int, ...]

LAUNCH_SECONDS: Final = 0.001
MOST_RUNS: Final = 100
"""Aimed length of one recorded launch while tuning, and the most runs in it."""

CONFIGS: Final[Mapping[str, tuple[Config, ...]]] = {
    # (block_q, block_k, warps, stages); the first one is the untuned choice
    "attend": ((64, 64, 4, 2), (128, 64, 8, 3), (128, 128, 8, 2), (128, 64, 4, 3), (64, 128, 4, 3)),
    # (splits, block_k, warps, stages)
    "decode": (
        (1, 64, 4, 2), (1, 128, 4, 3), (4, 64, 4, 3), (4, 128, 8, 2), (16, 64, 4, 3),
        (16, 128, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TuningGain:
    """What tuning one kernel brought."""

    kernel: str
    key: str
    config: Config
    untuned_seconds: float
    tuned_seconds: float


class TunedConfigs:
    """Winners by kernel and key.

    Args:
        clock: For the budget.
        budget_seconds: After this much tuning the untuned choice is taken.
        path: The cache, None for none.
        cache_key: Winners of another key are not used.
    """

    def __init__(
        self, clock: Clock, budget_seconds: float, path: Path | None = None, cache_key: str = ""
    ) -> None:
        self._clock = clock
        self._left_ns = round(budget_seconds * NS_PER_SECOND)
        self._path = path
        self._cache_key = cache_key
        self._winners: dict[str, Config] = {}
        self.gains: list[TuningGain] = []
        if path is not None and path.exists():
            self._read(path)

    def best(
        self,
        kernel: str,
        key: Hashable,
        with_config: Callable[[Config], Callable[[int], None]],
        copies: int = 1,
    ) -> Config:
        """The winner; found now if it is not known and the budget allows.

        Args:
            copies: Operand copies that runs take in turn: as cold as when they are measured.
        """
        name = f"{kernel}|{key}"
        if name in self._winners:
            return self._winners[name]
        choices = CONFIGS[kernel]
        if self._left_ns <= 0:
            return choices[0]
        start_ns = self._clock.monotonic_ns()
        times = {config: _seconds(with_config(config), self._clock, copies) for config in choices}
        winner = min(times, key=lambda config: times[config])
        self._left_ns -= self._clock.monotonic_ns() - start_ns
        self._winners[name] = winner
        self.gains.append(TuningGain(kernel, str(key), winner, times[choices[0]], times[winner]))
        self._write()
        return winner

    def remarks(self) -> list[str]:
        """What this run's tuning brought, kernel by kernel; what was read from the cache is not."""
        lines = []
        for kernel in dict.fromkeys(gain.kernel for gain in self.gains):
            own = [gain for gain in self.gains if gain.kernel == kernel and gain.tuned_seconds > 0]
            times = sorted(gain.untuned_seconds / gain.tuned_seconds for gain in own)
            if times:
                lines.append(
                    f"tuning {kernel}: {len(times)} keys, {times[len(times) // 2]:.2f} times as "
                    f"fast as untuned (median), {times[-1]:.2f} at most"
                )
        return lines

    def _read(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text("utf-8"))
            if document["cache_key"] == self._cache_key:
                self._winners = {
                    str(name): tuple(int(x) for x in config)
                    for name, config in document["winners"].items()
                }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError("tuning cache", "a file that wattpack wrote", str(path)) from error

    def _write(self) -> None:
        if self._path is None:
            return
        document: dict[str, Any] = {"cache_key": self._cache_key, "winners": self._winners}
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(document, indent=1), "utf-8")
        draft.replace(self._path)


def _seconds(run: Work, clock: Clock, copies: int) -> float:
    """Time of one run; infinite where the configuration does not fit the board."""
    try:
        run(0)
        if not torch.cuda.is_available():
            return 0.0
        device = torch.device("cuda", torch.cuda.current_device())
        return _graph_seconds(run, HostAndDevice(device, clock), copies)
    except Exception as error:
        # Triton raises its own out-of-resources error; a broken CUDA context must not be hidden.
        if "resource" in str(error).lower() or "shared memory" in str(error).lower():
            return float("inf")
        raise


def _graph_seconds(run: Work, place: HostAndDevice, copies: int) -> float:
    """Time of one run inside a graph of many: one by one, short kernels take the host's time.

    Timed so, every configuration of a 10 us kernel looked the same and the winner was a draw of
    lots: a decode step of a 70B slice on an H100 took 14.9 ms where 8.7 ms are due.
    """
    few = RecordedLaunch(run, place, "", repeats=Repeats(copies, copies))
    seconds = min(few.launch(1).seconds() for _ in range(2)) / copies
    few.close()
    turns = round(min(LAUNCH_SECONDS / max(seconds, 1e-7), MOST_RUNS) / copies)
    runs = copies * max(1, turns)
    many = RecordedLaunch(run, place, "", repeats=Repeats(copies, runs))
    seconds = min(many.launch(1).seconds() for _ in range(3)) / runs
    many.close()
    return seconds
