"""Reconciled forecasts against the textbook's dense algebra."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.domains.forecast_errors import (
    ErrorCovariance,
    shrunken_covariance,
    variance_scaling,
)
from forecasting.domains.not_negative import not_negative
from forecasting.domains.reconcile import reconcile
from forecasting.domains.series_tree import SeriesTree
from wattpack.errors import InputError

FAR_ABOVE = 1e6
"""Lifts paths so far that none is cut at 0: the oracles know no bound."""


def tree_of(parents: list[int]) -> SeriesTree:
    return SeriesTree(tuple(f"s{i}" for i in range(len(parents))), np.array(parents, dtype=np.intp))


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> SeriesTree:
    """Any forest; the order of nodes says nothing of their place."""
    n = draw(st.integers(1, most))
    parents = [-1] + [draw(st.integers(-1, i - 1)) for i in range(1, n)]
    order = draw(st.permutations(range(n)))
    shuffled = [-1] * n
    for i, parent in enumerate(parents):
        shuffled[order[i]] = -1 if parent < 0 else order[parent]
    return tree_of(shuffled)


def summing(tree: SeriesTree) -> np.ndarray:
    """The textbook's S, (n, n_leaves): which leaves a node is the sum of."""
    leaves = np.flatnonzero(tree.is_leaf)
    made = np.zeros((len(tree), len(leaves)))
    for column, leaf in enumerate(leaves):
        node = int(leaf)
        while node >= 0:
            made[node, column] = 1.0
            node = int(tree.parents[node])
    return made


def dense(s: np.ndarray, w: np.ndarray, base: np.ndarray) -> np.ndarray:
    """S (S' W^-1 S)^-1 S' W^-1 y."""
    weighed = s.T @ np.linalg.inv(w)
    made: np.ndarray = s @ np.linalg.solve(weighed @ s, weighed @ base)
    return made


def drawn(seed: int, n: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random, random.normal(0, 30, (n, 2, 3)), random.uniform(0.1, 20, n) ** 2


def lifted(tree: SeriesTree, base: np.ndarray) -> np.ndarray:
    """Base forecasts moved by values that add up, so that reconciliation moves with them."""
    return base + FAR_ABOVE * summing(tree).sum(axis=1)[:, None, None]


@given(trees(), st.integers(0, 10**6))
def test_variances_give_what_the_dense_formula_gives(tree: SeriesTree, seed: int) -> None:
    _, base, variances = drawn(seed, len(tree))
    base = lifted(tree, base)
    made = reconcile(tree, base, ErrorCovariance(variances))
    wanted = dense(summing(tree), np.diag(variances), base.reshape(len(tree), -1))
    assert made.reshape(len(tree), -1) == pytest.approx(wanted, rel=1e-11)


@given(trees(), st.integers(0, 10**6))
def test_shared_errors_give_what_the_dense_formula_gives(tree: SeriesTree, seed: int) -> None:
    random, base, _ = drawn(seed, len(tree))
    base = lifted(tree, base)
    errors = random.normal(0, 3, (len(tree), 30)) + random.normal(0, 3, 30)
    covariance = shrunken_covariance(errors)
    assert covariance.shared is not None
    dense_w = np.diag(covariance.own) + covariance.shared @ covariance.shared.T
    made = reconcile(tree, base, covariance)
    wanted = dense(summing(tree), dense_w, base.reshape(len(tree), -1))
    assert made.reshape(len(tree), -1) == pytest.approx(wanted, rel=1e-9)


@given(trees(), st.integers(0, 10**6), st.booleans())
def test_missing_series_are_left_out_of_the_formula(
    tree: SeriesTree, seed: int, shared: bool
) -> None:
    random, base, variances = drawn(seed, len(tree))
    base = lifted(tree, base)
    here = random.random(len(tree)) < 0.6
    covariance = ErrorCovariance(variances)
    if shared:
        covariance = shrunken_covariance(random.normal(0, 3, (len(tree), 40)) + random.normal())
    made = reconcile(tree, np.where(here[:, None, None], base, np.nan), covariance)
    s = summing(tree)
    seen = s[here]
    # Only what the others determine can be compared: nodes in the span of those that are known.
    settled = np.array([
        np.linalg.matrix_rank(np.vstack([seen, row])) == np.linalg.matrix_rank(seen) for row in s
    ])  # fmt: skip
    w = np.diag(covariance.own)
    if covariance.shared is not None:
        w = w + covariance.shared @ covariance.shared.T
    weighed = seen.T @ np.linalg.inv(w[np.ix_(here, here)])
    leaves = np.linalg.pinv(weighed @ seen) @ weighed @ base[here].reshape(here.sum(), 6)
    wanted = (s @ leaves)[settled]
    assert made[settled].reshape(wanted.shape) == pytest.approx(wanted, rel=1e-5)
    assert np.isfinite(made[here]).all()
    assert np.isnan(made[~settled]).all(axis=(1, 2)).sum() == lost_nodes(tree, here)


def lost_nodes(tree: SeriesTree, here: np.ndarray) -> int:
    """Nodes without a forecast of which no ancestor has one and some leaf below lacks all too."""
    count = 0
    for node in range(len(tree)):
        above, at = not here[node], int(tree.parents[node])
        while at >= 0 and above:
            above, at = not here[at], int(tree.parents[at])
        count += above and not covered(tree, here, node)
    return count


def covered(tree: SeriesTree, here: np.ndarray, node: int) -> bool:
    if here[node]:
        return True
    children = np.flatnonzero(tree.parents == node)
    return len(children) > 0 and all(covered(tree, here, int(c)) for c in children)


@given(trees(), st.integers(0, 10**6), st.booleans())
def test_leaves_add_up_and_nothing_is_negative_on_any_path(
    tree: SeriesTree, seed: int, shared: bool
) -> None:
    random, base, variances = drawn(seed, len(tree))
    covariance = ErrorCovariance(variances)
    if shared:
        covariance = shrunken_covariance(random.normal(0, 3, (len(tree), 40)))
    made = reconcile(tree, base, covariance)
    assert made.min() >= 0
    leaves = made[tree.is_leaf]
    assert np.tensordot(summing(tree), leaves, axes=1) == pytest.approx(made, abs=1e-6)
    again = reconcile(tree, made, covariance)
    assert again == pytest.approx(made, abs=1e-6)


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_children_are_projected_as_the_best_of_all_active_sets(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values, weights = random.normal(0, 5, n), random.uniform(0.1, 5, n)
    whole = abs(values.sum())
    tree = tree_of([-1] + [0] * n)
    made = not_negative(tree, np.concatenate([[whole], values])[:, None], np.append(1.0, weights))[
        1:, 0
    ]
    best, lowest = values, np.inf
    for chosen in product((False, True), repeat=n):
        kept = np.array(chosen)
        if not kept.any():
            continue
        trial = np.zeros(n)
        over = (values[kept].sum() - whole) / weights[kept].sum()
        trial[kept] = values[kept] - weights[kept] * over
        cost = float(((trial - values) ** 2 / weights).sum())
        if trial.min() >= -1e-12 and cost < lowest:
            best, lowest = trial, cost
    assert made == pytest.approx(best, abs=1e-9)


def test_a_parents_own_part_is_what_its_children_leave() -> None:
    tree = SeriesTree.of({"row": None, "a": "row", "b": "row"}, own=["row"])
    base = np.array([[100.0], [30.0], [20.0], [np.nan]])
    made = reconcile(tree, base, ErrorCovariance(np.ones(4)))
    assert tree.names[3] == "row (own)"
    assert made[:, 0] == pytest.approx([100, 30, 20, 50])


def test_the_history_of_an_own_part_is_what_the_parent_drew_beyond_the_rest() -> None:
    tree = SeriesTree.of({"row": None, "a": "row", "b": "row"}, own=["row"])
    values = np.array([[100.0, 50.0, np.nan], [30.0, 40.0, 1.0], [20.0, 30.0, 1.0]])
    made = tree.with_own_parts(values)
    assert made[:3].tolist()[1:] == values.tolist()[1:]
    assert made[3, :2].tolist() == [50.0, 0.0]
    assert np.isnan(made[3, 2])


def test_shrinkage_is_the_papers_sum_over_all_pairs() -> None:
    random = np.random.default_rng(5)
    errors = random.normal(0, 2, (6, 50)) + random.normal(0, 1, 50)
    x = errors / np.sqrt((errors**2).mean(axis=1))[:, None]
    noise = squares = 0.0
    n_times = 50
    for i, j in product(range(6), repeat=2):
        if i != j:
            w = x[i] * x[j]
            noise += n_times / (n_times - 1) ** 3 * ((w - w.mean()) ** 2).sum()
            squares += (n_times / (n_times - 1) * w.mean()) ** 2
    shrink = min(1.0, noise / squares)
    made = shrunken_covariance(errors)
    assert made.shared is not None
    whole = np.diag(made.own) + made.shared @ made.shared.T
    sample = errors @ errors.T / n_times
    wanted = shrink * np.diag(np.diag(sample)) + (1 - shrink) * sample
    assert whole == pytest.approx(wanted)


def test_errors_that_are_unknown_count_for_nobody() -> None:
    errors = np.array([[1.0, -1.0, np.nan], [3.0, 3.0, 3.0], [np.nan] * 3])
    assert variance_scaling(errors).variances == pytest.approx([1.0, 9.0, 5.0])
    assert shrunken_covariance(errors).shared is None


def test_deep_chains_and_ten_thousand_leaves_cost_little() -> None:
    chain = tree_of([-1, *range(299)])
    made = reconcile(chain, np.linspace(0, 600, 300)[:, None], ErrorCovariance(np.ones(300)))
    assert made == pytest.approx(np.full((300, 1), 300.0))
    parents = [-1] + [0] * 100 + [1 + i % 100 for i in range(10_000)]
    tree, random = tree_of(parents), np.random.default_rng(1)
    base = random.gamma(2.0, 5.0, (len(parents), 10, 36))
    begin = time.process_time()
    made = reconcile(tree, base, variance_scaling(random.normal(0, 3, (len(parents), 200))))
    # 0.4 s measured; a dense solve of this size takes minutes and gigabytes.
    assert time.process_time() - begin < 20
    assert made[1:101].sum(axis=0) == pytest.approx(made[0])


@pytest.mark.parametrize(
    ("parents", "field"), [([1, 0], "parents"), ([-1, 5], "parents"), ([0], "parents")]
)
def test_what_is_no_forest_is_refused(parents: list[int], field: str) -> None:
    with pytest.raises(InputError, match=field):
        tree_of(parents)


def test_unknown_parents_repeated_names_and_other_rows_are_refused() -> None:
    with pytest.raises(InputError, match="parents"):
        SeriesTree.of({"a": "nobody"})
    with pytest.raises(InputError, match="names"):
        SeriesTree(("a", "a"), np.array([-1, -1]))
    with pytest.raises(InputError, match="paths"):
        reconcile(tree_of([-1, 0]), np.ones((3, 1)), ErrorCovariance(np.ones(2)))
    with pytest.raises(InputError, match="own"):
        ErrorCovariance(np.array([1.0, np.nan]))
