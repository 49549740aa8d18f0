"""A forecast of a domain that enforces promises no more than its breaker may carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forecasting.calibration.scores import missed
from forecasting.forecast import bounded
from tests.forecasting.test_start_leads import Row as LeadRow
from wattpack.api import PowerDomain
from wattpack.kube.port import PODS, ForbiddenError, ObjectList, Resource

DOMAINS = PowerDomain.meta.resource


class Row(LeadRow):
    """Draws 100 to 200 W, with a p99 between 150 and 200."""

    def rated(self, watts: float, name: str = "row", **spec: Any) -> None:
        """The domain runs with this rating; it enforces unless it says otherwise."""
        body = self.kube.get(DOMAINS, name)
        body["spec"] |= {"ratingWatts": watts, "enforcement": "Enforce", **spec}
        body = self.kube.replace(DOMAINS, body)
        body["status"] = {"acceptedSpec": body["spec"]}
        self.kube.replace(DOMAINS, body, subresource="status")

    def told(self, name: str = "row") -> dict[str, Any]:
        assert self.process.tick()
        return self.status(name)


@pytest.fixture
def row() -> Row:
    return Row()


def test_no_figure_of_a_domain_that_enforces_exceeds_its_rating(row: Row) -> None:
    free = row.told()
    assert 150 < free["p99"] < 200
    row.rated(140.0)
    told = row.told()
    assert told["p99"] == 140.0
    assert max(max(path["values"]) for path in told["quantiles"]) <= 140.0
    assert "at most PowerDomain row's rating of 140" in row.ready("row")["message"]
    # The forecast of the rack below it has a limit of its own.
    assert row.status("rack")["p99"] > 150


@pytest.mark.parametrize(
    ("typed", "p99", "told"),
    [
        (120.0, 120.0, "spec.ceilingWatts of 120"),
        (145.0, 140.0, "PowerDomain row's rating of 140"),
    ],
)
def test_the_lower_of_a_typed_ceiling_and_the_rating_rules(
    row: Row, typed: float, p99: float, told: str
) -> None:
    row.rated(140.0)
    row.add("typed", ceilingWatts=typed)
    assert row.told("typed")["p99"] == p99
    assert told in row.ready("typed")["message"]


def test_the_rating_is_what_every_declared_loss_of_feeds_leaves(row: Row) -> None:
    feeds = {"mode": "KofN", "feeds": 3, "requiredFeeds": 2}
    row.rated(70.0, redundancy=feeds)
    assert row.told()["p99"] == 140.0


def test_load_that_may_use_all_feeds_is_cut_at_all_of_them(row: Row) -> None:
    reserve = {
        "mode": "2N",
        "useReserve": True,
        "overloadCurve": [
            {"loadRatio": 1.25, "tripSeconds": 600},
            {"loadRatio": 1.5, "tripSeconds": 60},
        ],
        "feedShare": {"prometheusQuery": "max(share)"},
    }
    row.rated(70.0, redundancy=reserve)
    assert row.told()["p99"] == 140.0


def test_windows_of_a_past_without_the_rating_are_not_judged_by_it(row: Row) -> None:
    free = row.told()
    row = Row()
    row.rated(140.0)
    told = row.told()
    # Peaks of 200 W came when nothing held them: a promise of 140 W was never made of them.
    assert told["coverageN"] == free["coverageN"] > 20
    assert told["violations"] == free["violations"]


def test_a_ceiling_that_held_changes_no_miss() -> None:
    rng = np.random.default_rng(11)
    levels = (0.5, 0.9, 0.95, 0.99)
    for ceiling in (5.0, 20.0, 100.0, 1000.0):
        steps = np.sort(rng.lognormal(3, 1, size=(50, 36, 4)), axis=2)
        peaks = np.sort(rng.lognormal(4, 1, size=(50, 4)), axis=1)
        came = np.minimum(rng.lognormal(3, 1, size=(50, 36)), ceiling * (1 - 1e-9))
        free, cut = (bounded(steps, peaks, np.full(50, top)) for top in (np.inf, ceiling))
        highest = came.max(axis=1, keepdims=True)
        for place, realised in ((0, came), (1, highest)):
            told = [one[place].reshape(50, -1, 4) for one in (free, cut)]
            misses = [missed(realised, one, levels, None) for one in told]
            np.testing.assert_array_equal(*misses)


def test_what_caps_do_not_hold_is_not_cut(row: Row) -> None:
    """In DryRun draws exceed the rating: a forecast that hid them would break its own promise."""
    row.rated(140.0, enforcement="DryRun")
    assert row.told()["p99"] > 150
    assert "rating" not in row.ready("row")["message"]


def test_a_spec_that_nobody_accepted_cuts_nothing(row: Row) -> None:
    body = row.kube.get(DOMAINS, "row")
    body["spec"] |= {"ratingWatts": 140.0, "enforcement": "Enforce"}
    row.kube.replace(DOMAINS, body)
    assert row.told()["p99"] > 150


def test_without_history_the_rating_stands_in(row: Row) -> None:
    row.rated(140.0)
    row.add("new", target={"powerDomain": "row", "series": "domain:new"})
    told = row.told("new")
    assert (told["method"], told["p50"], told["p99"]) == ("limit", 140.0, 140.0)
    ready = row.ready("new")
    assert (ready["status"], ready["reason"]) == ("False", "NoHistory")
    assert "PowerDomain row's rating of 140 stands in" in ready["message"]


def test_a_rating_below_the_newest_value_is_told(row: Row) -> None:
    row.rated(20.0)
    row.told()
    message = row.ready("row")["message"]
    assert "all is cut at PowerDomain row's rating of 20, below the newest value" in message


def test_a_rating_is_remembered_while_objects_cannot_be_read(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    row.rated(140.0)
    assert row.told()["p99"] == 140.0
    listed = row.kube.list

    def refused(resource: Resource, *args: Any, **more: Any) -> ObjectList:
        if resource == PODS:
            raise ForbiddenError("pods are forbidden")
        return listed(resource, *args, **more)

    monkeypatch.setattr(row.kube, "list", refused)
    row.clock.advance_seconds(600.0)
    assert row.told()["p99"] == 140.0
