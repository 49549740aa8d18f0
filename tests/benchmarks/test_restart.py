"""The account of ``restart`` sees boards that fall, and an update that costs nothing."""

from __future__ import annotations

import logging

import pytest

from benchmarks.restart import one_update


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
    assert (with_surge["fell"], with_surge["ended"], with_surge["heat"]) == (0, 0, 0.0)
    assert without["violations"] == with_surge["violations"] == 0
