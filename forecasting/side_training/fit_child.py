"""The process that fits forests: a sample on disk in, model texts out.

    python -m forecasting.side_training.fit_child FOLDER

It reads ``sample.npz`` and writes ``forests.json``, whole or not at all.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from forecasting.tiers.boosted_features import Sample
from forecasting.tiers.boosted_fit import Forests, fit_forests

SAMPLE_FILE = "sample.npz"
FORESTS_FILE = "forests.json"


def write_sample(folder: Path, sample: Sample, until_seconds: int) -> None:
    """What the child needs."""
    np.savez(
        folder / SAMPLE_FILE,
        features=sample.features,
        changes=sample.changes,
        weights=sample.weights,
        n_series=sample.n_series,
        until_seconds=until_seconds,
    )


def read_forests(folder: Path) -> Forests:
    """What the child made.

    Raises:
        ValueError, KeyError, TypeError, OSError: it is not there or not whole.
    """
    stored = json.loads((folder / FORESTS_FILE).read_text(encoding="utf-8"))
    return Forests(tuple(stored["texts"]), int(stored["untilSeconds"]))


def main(folder: Path) -> None:
    """Fit."""
    with np.load(folder / SAMPLE_FILE) as stored:
        arrays = stored["features"], stored["changes"], stored["weights"]
        sample = Sample(*arrays, n_series=int(stored["n_series"]))
        until_seconds = int(stored["until_seconds"])
    made = fit_forests(sample, until_seconds)
    part = folder / f"{FORESTS_FILE}.part"
    document = {"texts": list(made.texts), "untilSeconds": made.until_seconds}
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(folder / FORESTS_FILE)


if __name__ == "__main__":
    os.nice(10)  # a fit must not take time from whoever decides within seconds
    main(Path(sys.argv[1]))
