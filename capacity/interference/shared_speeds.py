"""What kinds of work do to one another on a shared board, by the pairs measured on that GPU type.

A kind of work that was measured beside at least one other is known with all kinds that were: the
pair model fills in the pairs that nobody measured. On Gavel's table one measured pair of a job
leaves 3.0 to 9.4 points of error on the others, none of its own but others of its model 4.5 to 8.5,
shares that add up 8.9 to 15.9 (``python -m benchmarks interference``, by GPU type); of a model that
was never measured nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

from capacity.interference.pair_model import PairModel, PairRow, SharedJob

#: Pairs whose answer is kept; batch sizes are what pods say, so that there is no end of kinds.
_REMEMBERED = 20_000


class SharedSpeeds:
    """Slow-downs of pairs, learned once a GPU type and answered from memory after.

    Args:
        rows: Measured members by GPU type, under wattpack's name of it.
    """

    def __init__(self, rows: Mapping[str, Sequence[PairRow]] | None = None) -> None:
        self._rows = {model: tuple(found) for model, found in (rows or {}).items() if found}
        self._models: dict[str, PairModel] = {}
        self._kinds = {
            model: {row.job.model for row in found} for model, found in self._rows.items()
        }
        self._said: dict[tuple[str, SharedJob, SharedJob], tuple[float, float]] = {}

    def knows(self, gpu_model: str, job: SharedJob) -> bool:
        """Whether such work was measured beside any other on the type."""
        return job.model in self._kinds.get(gpu_model, ())

    def slow_downs(
        self, gpu_model: str, jobs: Sequence[SharedJob]
    ) -> dict[tuple[SharedJob, SharedJob], tuple[float, float]]:
        """Of every pair of the known ones among the jobs, also of each beside its like.

        Returns:
            Time over time alone, at least 1, of the first and of the second.
        """
        known = [job for job in jobs if self.knows(gpu_model, job)]
        pairs = list(combinations_with_replacement(known, 2))
        new = [pair for pair in pairs if (gpu_model, *pair) not in self._said]
        if len(self._said) + len(new) > _REMEMBERED:
            self._said.clear()
            new = pairs
        found = self._model(gpu_model).speeds_of(new) if new else []
        for pair, (one, other) in zip(new, found, strict=True):
            self._said[gpu_model, *pair] = (max(1.0, 1.0 / one), max(1.0, 1.0 / other))
        return {pair: self._said[gpu_model, *pair] for pair in pairs}

    def _model(self, gpu_model: str) -> PairModel:
        """Fitted when it is first asked: a thousand rows take half a second."""
        if gpu_model not in self._models:
            self._models[gpu_model] = PairModel(self._rows[gpu_model])
        return self._models[gpu_model]
