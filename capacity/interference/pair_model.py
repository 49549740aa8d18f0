"""Speed of two jobs that share a board, learned from pairs that were measured on that GPU type.

A job has a model and a batch size. How much it suffers and how much it hurts are two unknown
factors of the job, alike for jobs of one model and more so for neighbouring batch sizes; what a
pair adds to both is alike for alike pairs. That is Gaussian-process regression on the log odds of
the speed with a sum and a product of one kernel of jobs. Its prediction of rows that were left out
has a closed form, so that each pair can be judged by all others.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2 and 5.4.2; kernels over
two factors as in Bonilla et al., Multi-task Gaussian Process Prediction (2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: A job beside another may measure a little faster than alone; beyond this a row is a mistake.
CEILING = 1.02
#: Slower than this is not told apart: the log odds would be all that counts.
FLOOR = 0.02


@dataclass(frozen=True, slots=True)
class SharedJob:
    """What is known of a job before it shares a board.

    Attributes:
        model: What runs.
        batch_size: Samples of a step.
    """

    model: str
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError("batch_size", "at least 1", self.batch_size)


@dataclass(frozen=True, slots=True)
class PairRow:
    """One member of a measured pair.

    Attributes:
        job: Whose speed it is.
        beside: With whom it shared the board.
        speed: Its throughput over that of its own alone on the same GPU type.
    """

    job: SharedJob
    beside: SharedJob
    speed: float

    def __post_init__(self) -> None:
        if not 0.0 < self.speed <= CEILING:
            raise InputError(
                "speed", f"a share of the speed alone, above 0 to {CEILING}", self.speed
            )


@dataclass(frozen=True, slots=True)
class Prior:
    """How much the log odds of speed vary, as variances; assumed, not fitted.

    Attributes:
        mean: Of the mean of all pairs.
        same_model: Between models.
        near_batch: Within a model, fading over a factor of two in batch size.
        own: Of a single job.
        pair: What a pair adds, over what its two members bring.
        noise: Of a measurement.
    """

    mean: float = 1.0
    same_model: float = 0.5
    near_batch: float = 0.5
    own: float = 0.3
    pair: float = 0.3
    noise: float = 0.05


class PairModel:
    """Predicts both speeds of a pair on one GPU type.

    Args:
        rows: Measured members, at least one.
        prior: Variances.

    Raises:
        InputError: without rows.
    """

    def __init__(self, rows: Sequence[PairRow], prior: Prior | None = None) -> None:
        if not rows:
            raise InputError("rows", "at least one measured pair", 0)
        self._rows = tuple(rows)
        self._prior = prior or Prior()
        self._odds = np.array([_log_odds(row.speed) for row in rows])
        covariance = self._covariance(self._rows, self._rows)
        self._inverse = np.linalg.inv(covariance + self._prior.noise * np.eye(len(rows)))
        self._weights: Floats = self._inverse @ self._odds

    def speeds(self, first: SharedJob, second: SharedJob) -> tuple[float, float]:
        """Of the first beside the second and of the second beside the first, over their own alone.

        Jobs of which nothing was measured are answered from the mean of all pairs.
        """
        return self.speeds_of([(first, second)])[0]

    def speeds_of(self, pairs: Sequence[tuple[SharedJob, SharedJob]]) -> list[tuple[float, float]]:
        """As ``speeds``, for many pairs at once."""
        if not pairs:
            return []
        asked = [PairRow(a, b, 1.0) for pair in pairs for a, b in (pair, pair[::-1])]
        speeds = _speed(self._covariance(asked, self._rows) @ self._weights)
        return [(float(one), float(other)) for one, other in speeds.reshape(-1, 2)]

    def left_out(self, groups: Iterable[Integers]) -> Floats:
        """What the model says of each row when it has not seen the row's group.

        Args:
            groups: Indices of rows, (n_group,), each group held out together.

        Returns:
            Speeds, (n_rows,), NaN for a row in no group.
        """
        said = np.full(len(self._rows), np.nan)
        for group in groups:
            block = self._inverse[np.ix_(group, group)]
            said[group] = self._odds[group] - np.linalg.solve(block, self._weights[group])
        return _speed(said)

    def _covariance(self, left: Sequence[PairRow], right: Sequence[PairRow]) -> Floats:
        suffers = self._alike([row.job for row in left], [row.job for row in right])
        hurts = self._alike([row.beside for row in left], [row.beside for row in right])
        return self._prior.mean + suffers + hurts + self._prior.pair * suffers * hurts

    def _alike(self, left: Sequence[SharedJob], right: Sequence[SharedJob]) -> Floats:
        models = {job.model for job in (*left, *right)}
        number = {model: n for n, model in enumerate(sorted(models))}
        one = np.array([number[job.model] for job in left])
        two = np.array([number[job.model] for job in right])
        same = (one[:, None] == two[None, :]).astype(np.float64)
        octaves = np.subtract.outer(_octaves(left), _octaves(right))
        prior = self._prior
        own: Floats = prior.own * (octaves == 0.0)
        near: Floats = prior.near_batch * np.exp(-0.5 * octaves**2)
        alike: Floats = same * (prior.same_model + near + own)
        return alike


def _octaves(jobs: Sequence[SharedJob]) -> Floats:
    return np.array([math.log2(job.batch_size) for job in jobs])


def _log_odds(speed: float) -> float:
    bounded = min(max(speed, FLOOR), 1.0)
    return math.log(bounded / (CEILING - bounded))


def _speed(odds: Floats) -> Floats:
    speeds: Floats = np.minimum(1.0, CEILING / (1.0 + np.exp(-odds)))
    return speeds
