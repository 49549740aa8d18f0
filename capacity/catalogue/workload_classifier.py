"""Which kind of work a board's telemetry looks like, with a probability that can be believed.

Each catalogue entry on each of some GPU types is one Gaussian in the space of features, all with
one covariance. Unknown features are left out of the likelihood. Probabilities are calibrated by one
temperature on GPU types and seeds that the fit did not see. Far from every entry, or without a
clear winner, the answer is ``unknown``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

import numpy as np

from capacity.catalogue.telemetry_features import NAMES, Floats
from wattpack.errors import InputError

CLASSES_FILE: Final = "data/workload_classes.json"
SCHEMA: Final = "wattpack.io/workload-classes/v1"

WorkClass = Literal["compute", "bandwidth", "outside", "starved"]
"""``outside``: waits for host, storage, network or requests. ``starved``: by launches or by
operations that each need the one before; watts do not tell the two apart."""

AT_LIMIT: Final = 0.97
"""Draw over limit from which a board shows its limit and not its work: limits hold boards at 0.988
(own H200) and 0.994 (own H100) of theirs, less 1.5 % for meters."""

LEAST_CONFIDENCE: Final = 0.6
"""Probability of a class below which the answer is unknown."""

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the telemetry looks like.

    Attributes:
        bound: What binds, or ``unknown``.
        workload: The likeliest catalogue entry of that class, empty for unknown.
        kind: That entry's kind.
        confidence: Probability of the class.
        entry_confidence: Probability of the entry: entries that look alike share it.
    """

    bound: str
    workload: str
    kind: str
    confidence: float
    entry_confidence: float


@dataclass(frozen=True, slots=True)
class WorkloadClassifier:
    """The fitted classes.

    Attributes:
        entries: Name of each component, shape (n_components,); ``kinds``, ``classes`` likewise.
        means: Shape (n_components, n_features); ``covariance`` of every component.
        temperature: Log likelihoods are divided by it.
        farthest: Mahalanobis distance per known feature, squared, beyond which all is unknown.
    """

    entries: tuple[str, ...]
    kinds: tuple[str, ...]
    classes: tuple[WorkClass, ...]
    means: Floats
    covariance: Floats
    temperature: float
    farthest: float

    def __post_init__(self) -> None:
        n = len(self.entries)
        if self.means.shape != (n, len(NAMES)) or len(self.kinds) != n or len(self.classes) != n:
            raise InputError("means", f"{n} rows of {len(NAMES)} features", self.means.shape)
        if not np.isfinite(self.means).all() or not np.isfinite(self.covariance).all():
            raise InputError("means", "finite numbers", "NaN or infinity")

    def classify(self, observed: Floats) -> Verdict:
        """The verdict for one board's features; NaN features take no part.

        Raises:
            InputError: not one number a feature.
        """
        if observed.shape != (len(NAMES),):
            raise InputError("features", f"{len(NAMES)} numbers", observed.shape)
        if _shows_its_limit(observed):
            return Verdict(UNKNOWN, "", "", 0.0, 0.0)
        distances = self.distances(observed)
        known = int(np.isfinite(observed).sum())
        if known < 4 or distances.min() / known > self.farthest:
            return Verdict(UNKNOWN, "", "", 0.0, 0.0)
        weights = self.probabilities(distances)
        totals = {
            name: float(weights[np.array(self.classes) == name].sum())
            for name in get_args(WorkClass)
        }
        bound = max(totals, key=lambda name: totals[name])
        if totals[bound] < LEAST_CONFIDENCE:
            return Verdict(UNKNOWN, "", "", totals[bound], 0.0)
        mine: dict[str, float] = {}
        for index, name in enumerate(self.entries):
            if self.classes[index] == bound:
                mine[name] = mine.get(name, 0.0) + float(weights[index])
        best = max(mine, key=lambda name: mine[name])
        kind = self.kinds[self.entries.index(best)]
        return Verdict(bound, best, kind, totals[bound], mine[best])

    def distances(self, observed: Floats) -> Floats:
        """Squared Mahalanobis distance to each component over the known features, (n,)."""
        known = np.isfinite(observed)
        gaps = self.means[:, known] - observed[known]
        inverse = np.linalg.inv(self.covariance[np.ix_(known, known)])
        return np.asarray(np.einsum("ij,jk,ik->i", gaps, inverse, gaps))

    def probabilities(self, distances: Floats) -> Floats:
        """Of each component, by Bayes with equal priors an entry, (n,)."""
        scores = -0.5 * (distances - distances.min()) / self.temperature
        weights = np.exp(scores)
        return np.asarray(weights / weights.sum())


def _shows_its_limit(observed: Floats) -> bool:
    """At the limit draw and utilisation are the same for all work: only memory tells it apart."""
    level, memory = (observed[NAMES.index(name)] for name in ("level", "memory_utilisation"))
    return bool(level >= AT_LIMIT and np.isnan(memory))


@lru_cache(maxsize=1)
def shipped_classifier() -> WorkloadClassifier:
    """The classes that come with wattpack (``python -m capacity.catalogue.classifier_fit``)."""
    text = files("capacity").joinpath(CLASSES_FILE).read_text("utf-8")
    return classifier_from_document(json.loads(text), CLASSES_FILE)


def classifier_from_document(document: dict[str, Any], source: str = "") -> WorkloadClassifier:
    """The classifier that ``classifier_document`` wrote.

    Raises:
        InputError: another schema, or shapes that do not fit together.
    """
    if document.get("schema") != SCHEMA or tuple(document.get("features", ())) != NAMES:
        raise InputError("schema", f"{SCHEMA} with its features", document.get("schema"), source)
    components: Sequence[dict[str, Any]] = document["components"]
    return WorkloadClassifier(
        tuple(part["entry"] for part in components),
        tuple(part["kind"] for part in components),
        tuple(part["class"] for part in components),
        np.array([part["mean"] for part in components], dtype=np.float64),
        np.array(document["covariance"], dtype=np.float64),
        float(document["temperature"]),
        float(document["farthest"]),
    )


def classifier_document(classifier: WorkloadClassifier) -> dict[str, Any]:
    """As plain values, rounded."""
    return {
        "schema": SCHEMA,
        "features": list(NAMES),
        "temperature": round(classifier.temperature, 3),
        "farthest": round(classifier.farthest, 3),
        "covariance": [[round(v, 7) for v in row] for row in classifier.covariance.tolist()],
        "components": [
            {"entry": entry, "kind": kind, "class": work, "mean": [round(v, 4) for v in mean]}
            for entry, kind, work, mean in zip(
                classifier.entries,
                classifier.kinds,
                classifier.classes,
                classifier.means.tolist(),
                strict=True,
            )
        ],
    }
