"""``python -m capacity.catalogue.classifier_fit [--check]``: the classes from the catalogue.

Deterministic: fixed seeds, one for the means and covariance, another for temperature and reach.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import PricedGpu, priced_gpu
from capacity.catalogue.synthetic_telemetry import (
    WorkSignals,
    draw_telemetry,
    work_class,
    work_signals,
)
from capacity.catalogue.telemetry_features import NAMES, Floats, features
from capacity.catalogue.workload_classifier import (
    CLASSES_FILE,
    WorkClass,
    WorkloadClassifier,
    classifier_document,
    shipped_classifier,
)
from capacity.catalogue.workload_schema import Workload

GPUS: Final = ("H200-SXM", "H100-SXM", "A100-SXM", "L40S")
FIT_SEED: Final = 7001
CALIBRATION_SEED: Final = 57001
DRAWS: Final = 12
CALIBRATION_DRAWS: Final = 4
LEAST_SPREAD: Final = 0.02
"""Of every feature: no board is known better than that."""

DRIFT: Final = 0.05
"""Of a feature between two fits: within the spread of one entry's windows."""

TEMPERATURES: Final = np.geomspace(0.5, 30, 25)
REACH_QUANTILE: Final = 0.999


@dataclass(frozen=True, slots=True)
class _Work:
    """One entry on one GPU type, and windows of it."""

    entry: str
    kind: str
    work: WorkClass
    gpu: str
    fit: Floats
    held: Floats


def fit_classifier() -> WorkloadClassifier:
    """From the shipped catalogue."""
    works = [
        _work(entry, priced_gpu(name), GPUS.index(name) * 1000 + i)
        for name in GPUS
        for i, entry in enumerate(shipped_catalogue().values())
    ]
    made = _fitted(works, 1.0, np.inf)
    # A board that the fit has seen is too easy: each type is judged by the others.
    strangers = [(_fitted([w for w in works if w.gpu != name], 1.0, np.inf),
                  [w for w in works if w.gpu == name]) for name in GPUS]  # fmt: skip
    temperature = min(TEMPERATURES.tolist(), key=lambda t: _loss(strangers, t))
    nearest = [made.distances(row).min() / len(NAMES) for work in works for row in work.held]
    return _fitted(works, temperature, 2 * float(np.quantile(nearest, REACH_QUANTILE)))


def _work(entry: Workload, gpu: PricedGpu, seed: int) -> _Work:
    signals = work_signals(entry, gpu)
    return _Work(
        entry.name, entry.kind, work_class(entry, gpu), gpu.name,
        _draws(signals, gpu, FIT_SEED + seed, DRAWS),
        _draws(signals, gpu, CALIBRATION_SEED + seed, CALIBRATION_DRAWS),
    )  # fmt: skip


def _fitted(works: Sequence[_Work], temperature: float, farthest: float) -> WorkloadClassifier:
    means = np.array([work.fit.mean(axis=0) for work in works])
    left = np.concatenate([work.fit - work.fit.mean(axis=0) for work in works])
    covariance = left.T @ left / (len(left) - len(works)) + LEAST_SPREAD**2 * np.eye(len(NAMES))
    return WorkloadClassifier(
        tuple(work.entry for work in works), tuple(work.kind for work in works),
        tuple(work.work for work in works), means, covariance, temperature, farthest,
    )  # fmt: skip


def _loss(judged: Sequence[tuple[WorkloadClassifier, list[_Work]]], temperature: float) -> float:
    """Mean log loss of the class."""
    losses = []
    for classifier, works in judged:
        warm = replace(classifier, temperature=temperature)
        classes = np.array(warm.classes)
        for work in works:
            for row in work.held[:2]:
                right = warm.probabilities(warm.distances(row))[classes == work.work].sum()
                losses.append(-np.log(max(float(right), 1e-9)))
    return float(np.mean(losses))


def _draws(signals: WorkSignals, gpu: PricedGpu, seed: int, count: int) -> Floats:
    generator = np.random.default_rng(seed)
    made = [features(draw_telemetry(signals, gpu.limit_watts, generator)) for _ in range(count)]
    return np.array([row for row in made if row is not None])


def text() -> str:
    """The file's content."""
    document = classifier_document(fit_classifier())
    components = document.pop("components")
    head = json.dumps(document, indent=1)[:-2]
    lines = ",\n".join(f"  {json.dumps(part)}" for part in components)
    return f'{head},\n "components": [\n{lines}\n ]\n}}\n'


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file, or with ``--check`` say whether it tells what the catalogue gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    file = Path(str(files("capacity").joinpath(CLASSES_FILE)))
    if args.check:
        stale = differs(shipped_classifier(), fit_classifier())
        print(f"{file.name} is {'stale' if stale else 'what the catalogue gives'}")
        return int(stale)
    file.write_text(text(), "utf-8")
    return 0


def differs(old: WorkloadClassifier, new: WorkloadClassifier) -> bool:
    """Whether the classes tell another story: entries, or a mean beyond what no board tells apart.

    The prices move a little with every measured row; that is no reason for another file.
    """
    if (old.entries, old.classes) != (new.entries, new.classes):
        return True
    return bool(np.abs(old.means - new.means).max() > DRIFT)


if __name__ == "__main__":
    sys.exit(main())
