"""The account of ``restart`` sees boards that fall, and an update that costs nothing."""

from __future__ import annotations

import logging

import pytest

from benchmarks import restart
from benchmarks._lease_row import Row
from benchmarks.restart import HEATED, TARGETS, one_update
from wattpack.units import NS_PER_SECOND


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_agents_that_go_before_their_followers_cost_each_board_its_cap() -> None:
    """What the chart did before; the same account finds nothing of it with a surge."""
    without, with_surge = (one_update(arm, 2, 2, 5) for arm in ("agents_without_surge", "agents"))
    assert without["done"]
    assert with_surge["done"]
    assert without["fell"] >= 2
    assert without["work"] < with_surge["work"]
    assert (with_surge["fell"], with_surge["ended"]) == (0, 0)
    assert without["violations"] == with_surge["violations"] == 0


class ForgettingUpdate:
    """One that gives every board its default limit back for a while, as nothing of ours does."""

    def __init__(self, row: Row) -> None:
        self.done = False
        for tenth in range(100):
            row.after(20 * NS_PER_SECOND + tenth * NS_PER_SECOND // 10, lambda: self._forget(row))

    def _forget(self, row: Row) -> None:
        self.done = True
        for board in row.boards:
            board.hold(row.kind.default_watts)


def test_the_row_is_warm_and_an_update_that_heats_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = {"broken": lambda row: [ForgettingUpdate(row)]}
    monkeypatch.setattr(restart, "ARMS", {**restart.ARMS, **broken})
    undisturbed, both, forgetting = (
        one_update(arm, 4, 4, 1001) for arm in ("undisturbed", "both", "broken")
    )
    # The row is held at its target all the time, and its breakers have something to cool from.
    assert undisturbed["work"] < 0.98 * undisturbed["wanted"]
    assert undisturbed["above"] >= 1
    assert min(undisturbed["heats"][HEATED:]) > 0.0
    figures = restart._against([undisturbed], [both], "both")
    figures |= restart._against([undisturbed], [forgetting], "broken")
    line = TARGETS["both_heat_over_undisturbed"]
    assert line.met_by(float(figures["both_heat_over_undisturbed"]))
    assert not line.met_by(float(figures["broken_heat_over_undisturbed"]))
    assert float(figures["broken_above_seconds"]) > float(figures["both_above_seconds"])
