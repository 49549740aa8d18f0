"""Decisions of a hierarchy are taken where the actuator is; what lies below gets shares.

cluster ─► domain ─► service, as in HARMONY (arXiv 2408.01000), but a level without an actuator of
its own decides nothing: a row that only adds up its racks is not planned twice. The sum of a level
is made path by path; the sum of its children's quantiles reserves 3.1 times the realised peak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forecasting.decisions.decision import Decision
from forecasting.series_source import Floats
from wattpack.errors import InputError

BAND_SHARE = 0.05
"""Paths whose peak is nearest to the amount, by which it is shared; fewer are noise."""


@dataclass(frozen=True, slots=True)
class Level:
    """One node of the hierarchy.

    Attributes:
        name: Unique.
        children: Below it; none: a leaf, which has paths of its own.
        actuates: Whether an amount can be set here; below such a level nothing else is set.
    """

    name: str
    children: tuple[Level, ...] = ()
    actuates: bool = False

    def leaves(self) -> tuple[str, ...]:
        """Names of the leaves below, or its own."""
        if not self.children:
            return (self.name,)
        return tuple(leaf for child in self.children for leaf in child.leaves())


def decide_at_actuators(
    root: Level, leaf_paths: Mapping[str, Floats], decide: Callable[[Floats], Decision]
) -> dict[str, Decision]:
    """A decision for every topmost level with an actuator, and shares for all below it.

    Args:
        root: The hierarchy.
        leaf_paths: Joint paths of every leaf, each of shape (n, horizon): path j is one future.
        decide: From joint paths of one level to its amount.

    Returns:
        By name. What children get adds up to what their parent has.

    Raises:
        InputError: a name that stands twice, a leaf without paths or with others' shapes, a leaf
            that no actuator reaches.
    """
    names = root.leaves()
    if len(set(names)) != len(names):
        raise InputError("levels", "each leaf once", sorted(names))
    shapes = {np.shape(leaf_paths[name]) for name in names if name in leaf_paths}
    missing = [name for name in names if name not in leaf_paths]
    if missing or len(shapes) != 1:
        raise InputError("leafPaths", "paths of one shape for every leaf", missing or shapes)
    decided: dict[str, Decision] = {}
    _descend(root, leaf_paths, decide, decided)
    return decided


def _descend(
    level: Level,
    leaf_paths: Mapping[str, Floats],
    decide: Callable[[Floats], Decision],
    decided: dict[str, Decision],
) -> None:
    if level.actuates:
        made = decide(_summed(level, leaf_paths))
        _put(level, made, leaf_paths, decided)
    elif not level.children:
        raise InputError("levels", "an actuator at every leaf or above it", level.name)
    for child in () if level.actuates else level.children:
        _descend(child, leaf_paths, decide, decided)


def _put(
    level: Level, made: Decision, leaf_paths: Mapping[str, Floats], decided: dict[str, Decision]
) -> None:
    if level.name in decided:
        raise InputError("levels", "each name once", level.name)
    decided[level.name] = made
    if not level.children:
        return
    below = [_summed(child, leaf_paths) for child in level.children]
    parts = shares_of(made.amount, below)
    for child, part in zip(level.children, parts, strict=True):
        told = f"{part:.6g} is the share of {made.amount:.6g} decided for {level.name}"
        above = float(np.mean(_summed(child, leaf_paths).max(axis=1) > part))
        _put(child, Decision(part, above, made.binding, told), leaf_paths, decided)


def shares_of(amount: float, children: Sequence[Floats]) -> list[float]:
    """What each child takes when together they are near the amount; adds up to it.

    Of the paths whose summed peak is nearest to the amount, each child's mean at the moment of that
    peak (Euler's allocation): who is high when all are high gets more than who peaks alone.

    Args:
        amount: To be shared, not negative.
        children: Joint paths of each, shape (n, horizon).
    """
    stacked = np.stack([np.asarray(paths, dtype=np.float64) for paths in children])
    total = stacked.sum(axis=0)
    moment, peaks = total.argmax(axis=1), total.max(axis=1)
    band = max(1, round(BAND_SHARE * len(peaks)))
    near = np.argsort(np.abs(peaks - amount), kind="stable")[:band]
    means = np.maximum(stacked[:, near, moment[near]].mean(axis=1), 0.0)
    whole = float(means.sum())
    parts = means / whole if whole > 0 else np.full(len(children), 1 / len(children))
    return [float(part) for part in amount * parts]


def _summed(level: Level, leaf_paths: Mapping[str, Floats]) -> Floats:
    total: Floats = np.sum([leaf_paths[name] for name in level.leaves()], axis=0, dtype=np.float64)
    return total
