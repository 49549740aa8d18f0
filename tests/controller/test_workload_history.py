from __future__ import annotations

import numpy as np

from capacity.catalogue.workload_classifier import shipped_classifier
from controller.workload_history import WINDOW, WorkloadHistory, of_the_work

LIMITS = np.array([700.0, 700.0])
DECODE = (532.0, 1.0, 0.85, 1.0)
TINY = (154.0, 1.0, 0.0, 1.0)


def seen(
    history: WorkloadHistory, boards: dict[str, tuple[float, ...]], pods: list[str], n: int
) -> WorkloadHistory:
    for _ in range(n):
        table = np.array(list(boards.values())).T
        history.add(list(boards), pods, table[0], table[1:])
    return history


def verdict(history: WorkloadHistory, pod: str) -> str | None:
    boards = history.boards_of_pods()[pod]
    made = history.verdict(boards, LIMITS, shipped_classifier())
    return made.bound if made else None


def test_pods_are_judged_by_their_own_boards() -> None:
    made = seen(WorkloadHistory(), {"a": DECODE, "b": TINY}, ["team/x", "team/y"], WINDOW)
    assert verdict(made, "team/x") == "bandwidth"
    assert verdict(made, "team/y") == "starved"


def test_a_minute_is_needed_for_a_verdict() -> None:
    made = seen(WorkloadHistory(), {"a": DECODE}, ["team/x"], 59)
    assert verdict(made, "team/x") is None
    assert verdict(seen(made, {"a": DECODE}, ["team/x"], 1), "team/x") == "bandwidth"


def test_what_an_earlier_pod_did_is_forgotten() -> None:
    made = seen(WorkloadHistory(), {"a": DECODE}, ["team/x"], WINDOW)
    made = seen(made, {"a": TINY}, ["team/y"], 1)
    assert verdict(made, "team/y") is None


def test_boards_keep_their_past_when_others_come_and_go() -> None:
    made = seen(WorkloadHistory(), {"a": DECODE, "b": TINY}, ["team/x", ""], WINDOW)
    made = seen(made, {"c": TINY, "a": DECODE}, ["", "team/x"], 1)
    assert verdict(made, "team/x") == "bandwidth"


def test_a_board_without_a_utilisation_counter_is_not_taken_for_idle() -> None:
    silent = (532.0, 0.0, float("nan"), 1.0)
    made = seen(WorkloadHistory(), {"a": silent}, ["team/x"], WINDOW)
    assert verdict(made, "team/x") != "outside"


def test_a_board_at_its_cap_shows_the_cap_and_not_its_work() -> None:
    draws = np.array([449.0, 300.0, 695.0, 80.0])
    limits = np.array([450.0, 450.0, 700.0, np.nan])
    told = of_the_work(draws, limits, np.full(4, 700.0))
    assert np.isnan(told).tolist() == [True, False, False, False]


def test_a_look_between_an_agents_hello_and_its_report_forgets_nothing() -> None:
    """A reconnected agent's boards have no pod until its first report."""
    made = seen(WorkloadHistory(), {"a": DECODE, "b": TINY}, ["team/x", ""], WINDOW)
    made = seen(made, {"a": DECODE, "b": TINY}, ["", ""], 1)
    made = seen(made, {"a": DECODE, "b": TINY}, ["team/x", "team/z"], 1)
    assert verdict(made, "team/x") == "bandwidth"
    assert verdict(made, "team/z") is None


def test_a_board_that_was_free_for_long_begins_anew() -> None:
    made = seen(WorkloadHistory(), {"a": DECODE}, ["team/x"], WINDOW)
    made = seen(made, {"a": TINY}, [""], WINDOW)
    assert verdict(seen(made, {"a": TINY}, ["team/y"], 1), "team/y") is None
