"""Slow-down of two jobs on one GPU, predicted for pairs that were left out (Gavel's table).

26 training jobs of 7 models in all 351 pairs on a K80, a P100 and a V100, each type on its own.
Left out are one pair (both directions), all pairs of one job, or all pairs of one model; errors
are mean absolute errors of speed beside the other over speed alone, in points. Beside the model:
half each, the mean of the other pairs, one factor for each side (multiplicative), and shares of
the board that add up, as the planner counts them where no pair was measured, with the shares
themselves learned from the other pairs; and the model where only few pairs of a job are known.
Pairs that did not fit into memory are counted, not scored.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from benchmarks.runner import Options, Result, Target
from capacity.interference.pair_model import PairModel, PairRow, Prior, SharedJob

NAME = "interference"
SUMMARY = "slow-down of jobs that share a GPU, pairs held out (Gavel's co-location table)"
TABLE = Path(__file__).parent / "data" / "capacity" / "gavel" / "colocated_pairs.csv.gz"
#: CloudFormer (2025): mean absolute error of predicted degradation of co-located tenants.
PUBLISHED_POINTS = 7.8
#: A pair is harmful if a member runs at less than this of its own speed.
HARMFUL_SPEED = 0.4
FOLDS = 20
#: Of a job's own pairs, in the sweep over how many must be measured.
PAIRS_KNOWN = (0, 1, 3)
#: The prior is assumed; these vary it, one at a time, to show what it matters.
OTHER_PRIORS = (
    *(Prior(same_model=0.5 * f) for f in (0.3, 3.0)),
    *(Prior(near_batch=0.5 * f) for f in (0.3, 3.0)),
    *(Prior(own=0.3 * f) for f in (0.3, 3.0)),
    *(Prior(pair=0.3 * f) for f in (0.3, 3.0)),
    *(Prior(noise=0.05 * f) for f in (0.3, 3.0)),
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Table:
    """The pairs of one GPU type.

    Args:
        gpu: As the table calls it.
    """

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.rows: list[PairRow] = []
        self.without_room = 0
        with gzip.open(TABLE, "rt", encoding="utf-8") as text:
            for row in csv.DictReader(text):
                if row["gpu"] == gpu:
                    self._add(row)
        self.speeds: Floats = np.array([row.speed for row in self.rows])

    def _add(self, row: dict[str, str]) -> None:
        jobs = [SharedJob(row[f"model_{m}"], int(row[f"batch_{m}"])) for m in "ab"]
        alone = [float(row[f"alone_{m}_steps_per_second"]) for m in "ab"]
        shared = [float(row[f"shared_{m}_steps_per_second"]) for m in "ab"]
        if not any(shared):
            self.without_room += 1
            return
        # A job beside another of its kind stands in the table once.
        for m in (0,) if jobs[0] == jobs[1] else (0, 1):
            self.rows.append(PairRow(jobs[m], jobs[1 - m], shared[m] / alone[m]))

    def pairs(self) -> list[Integers]:
        """Rows of each unordered pair."""
        return self._groups(lambda row: {frozenset((row.job, row.beside))})

    def of_jobs(self) -> list[Integers]:
        """Rows that each job has a part in."""
        return self._groups(lambda row: {row.job, row.beside})

    def of_models(self) -> list[Integers]:
        """Rows that each model has a part in."""
        return self._groups(lambda row: {row.job.model, row.beside.model})

    def _groups(self, keys: Callable[[PairRow], set[object]]) -> list[Integers]:
        groups: dict[object, list[int]] = {}
        for index, row in enumerate(self.rows):
            for key in keys(row):
                groups.setdefault(key, []).append(index)
        return [np.array(group) for group in groups.values()]

    def error(self, said: Floats) -> float:
        """Mean absolute error in points of speed alone."""
        return float(100.0 * np.abs(said - self.speeds).mean())


def mean_of_groups(table: Table, model: PairModel, groups: Sequence[Integers]) -> float:
    """Error over groups that overlap: a row counts in each group that it was left out with."""
    errors = [np.abs(model.left_out([g])[g] - table.speeds[g]) for g in groups]
    return float(100.0 * np.concatenate(errors).mean())


def folded(table: Table, seed: int, fit: Callable[[Table, Integers], Floats]) -> Floats:
    """What a reference says of pairs it has not seen, twentieth by twentieth of all pairs.

    Args:
        table: The pairs.
        seed: Of the folds.
        fit: Speeds of all rows, (n_rows,), from the rows whose indices it gets.
    """
    pairs = table.pairs()
    order = np.random.default_rng(seed).permutation(len(pairs))
    said = np.empty(len(table.rows))
    for fold in range(FOLDS):
        out = np.concatenate([pairs[i] for i in order[fold::FOLDS]])
        known = np.setdiff1d(np.arange(len(table.rows)), out)
        said[out] = fit(table, known)[out]
    return said


def _sides(table: Table) -> tuple[Integers, Integers, int]:
    jobs = sorted({row.job for row in table.rows}, key=lambda job: (job.model, job.batch_size))
    number = {job: n for n, job in enumerate(jobs)}
    suffers = np.array([number[row.job] for row in table.rows])
    return suffers, np.array([number[row.beside] for row in table.rows]), len(jobs)


def mean_of_table(table: Table, known: Integers) -> Floats:
    """The mean of what is known, for every row."""
    return np.full(len(table.rows), table.speeds[known].mean())


def multiplicative(table: Table, known: Integers) -> Floats:
    """One factor of who suffers times one of who hurts, by least squares of logarithms."""
    suffers, hurts, jobs = _sides(table)
    eye = np.eye(jobs)
    design = np.concatenate([eye[suffers], eye[hurts]], axis=1)
    factors = np.linalg.lstsq(design[known], np.log(table.speeds[known]), rcond=None)[0]
    speeds: Floats = np.minimum(1.0, np.exp(design @ factors))
    return speeds


def added_shares(table: Table, known: Integers) -> Floats:
    """Both members slowed by the sum of their shares, if it is above 1; the shares by fit."""
    suffers, hurts, jobs = _sides(table)

    def speeds(shares: Floats) -> Floats:
        slower: Floats = np.maximum(1.0, shares[suffers] + shares[hurts])
        each: Floats = 1.0 / slower
        return each

    def misses(shares: Floats) -> Floats:
        return speeds(shares)[known] - table.speeds[known]

    start = np.full(jobs, 0.8)
    found = least_squares(misses, start, bounds=(0.0, 2.0), max_nfev=30)
    shares: Floats = np.asarray(found.x, dtype=np.float64)
    return speeds(shares)


def with_pairs_known(table: Table, seed: int, known: int) -> float:
    """Error over all other pairs of each job when so many of its own, drawn at random, are known.

    This is what a kind of work faces that was measured beside few others.
    """
    generator = np.random.default_rng(seed)
    pairs = table.pairs()
    misses: list[Floats] = []
    for own in table.of_jobs():
        mine = [pair for pair in pairs if pair[0] in own]
        order = generator.permutation(len(mine))
        out = np.concatenate([mine[i] for i in order[known:]])
        rows = np.setdiff1d(np.arange(len(table.rows)), out)
        model = PairModel([table.rows[i] for i in rows])
        for index in out:
            row = table.rows[index]
            said, _ = model.speeds(row.job, row.beside)
            misses.append(np.abs(said - table.speeds[index : index + 1]))
    return float(100.0 * np.concatenate(misses).mean())


def harmful(said: Floats, table: Table) -> tuple[float, float]:
    """Precision and recall of naming the rows that run at less than the harmful speed."""
    named, true = said < HARMFUL_SPEED, table.speeds < HARMFUL_SPEED
    hits = float((named & true).sum())
    return hits / max(1.0, float(named.sum())), hits / max(1.0, float(true.sum()))


def run(options: Options) -> Result:
    """Every figure for every GPU type; ``--quick`` leaves out the sweep over priors."""
    figures: dict[str, float | int | str] = {}
    tables = [Table(gpu) for gpu in ("k80", "p100", "v100")]
    pooled: dict[str, list[Floats]] = {}
    for table in tables:
        model = PairModel(table.rows)
        said = {
            "pair_out": model.left_out(table.pairs()),
            "half_each": np.full(len(table.rows), 0.5),
            "mean_of_table": folded(table, options.seed, mean_of_table),
            "multiplicative": folded(table, options.seed, multiplicative),
            "added_shares": folded(table, options.seed, added_shares),
        }
        for name, speeds in said.items():
            figures[f"{table.gpu}_{name}_points"] = round(table.error(speeds), 2)
            pooled.setdefault(name, []).append(np.abs(speeds - table.speeds))
        for name, groups in (("job_out", table.of_jobs()), ("model_out", table.of_models())):
            error = mean_of_groups(table, model, groups)
            figures[f"{table.gpu}_{name}_points"] = round(error, 2)
        precision, recall = harmful(said["pair_out"], table)
        figures[f"{table.gpu}_harmful_precision"] = round(precision, 3)
        figures[f"{table.gpu}_harmful_recall"] = round(recall, 3)
        figures[f"{table.gpu}_rows"] = len(table.rows)
        figures[f"{table.gpu}_pairs_without_room"] = table.without_room
        options.progress(f"{table.gpu}: {table.error(said['pair_out']):.2f} points, pair left out")
        if not options.quick:
            errors = [
                table.error(PairModel(table.rows, prior).left_out(table.pairs()))
                for prior in OTHER_PRIORS
            ]
            figures[f"{table.gpu}_pair_out_points_worst_prior"] = round(max(errors), 2)
            for known in PAIRS_KNOWN:
                error = with_pairs_known(table, options.seed, known)
                figures[f"{table.gpu}_with_{known}_known_points"] = round(error, 2)
    for name, errors_of_types in pooled.items():
        points = 100.0 * np.concatenate(errors_of_types).mean()
        figures[f"{name}_points"] = round(float(points), 2)
    figures["published_points"] = PUBLISHED_POINTS
    keys = ("pair_out_points", *(f"{table.gpu}_pair_out_points" for table in tables))
    return Result(figures, {key: Target(at_most=PUBLISHED_POINTS) for key in keys})
