"""What ``wattpack explain domains`` tells is what the controller then finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.acceptance import Site, accept
from controller.enforce_outlook import (
    DomainOutlook,
    PlannedBoard,
    PlannedServer,
    enforce_outlooks,
)
from controller.tick_values import PowerSettings
from tests.controller.test_topology import make_domain, make_node, profiles
from wattpack.api import PowerDomain
from wattpack.power.power_grid import Feeding, PowerGrid

BOARD = PlannedBoard("H200-SXM", 700.0, 200.0)


def looked(domains: Sequence[PowerDomain], **counts: int | PlannedBoard) -> list[DomainOutlook]:
    """Outlooks with so many servers of eight boards below each domain."""
    board = counts.pop("board", BOARD)
    assert isinstance(board, PlannedBoard)
    servers = [
        PlannedServer(Feeding(name.replace("_", "-")), (board,) * 8)
        for name, count in counts.items()
        for _ in range(int(str(count)))
    ]
    grid = PowerGrid.of({domain.name: domain.spec for domain in domains})
    return enforce_outlooks(grid, domains, servers, PowerSettings())


def rack(watts: float) -> PowerDomain:
    return make_domain(
        "rack", ratingWatts=watts, members={"nodeSelector": {"rack": "a"}}, supplyEfficiency=0.95
    )


def by_hand(caps: Sequence[float]) -> float:
    """AC watts of servers of eight boards, one cap each, beside 2 kW of each server."""
    boards = 8 * sum(caps)
    spread = 1 + 0.09 / math.sqrt(8 * len(caps))
    return boards * 1.05 * spread / 0.95 + 2000.0 * len(caps)


def test_figures_of_a_rack_by_hand() -> None:
    (found,) = looked([rack(60_000.0)], rack=10, board=replace(BOARD, guaranteed_watts=400.0))
    assert (found.servers, found.gpus, found.servers_at_default) == (10, 80, 1)
    assert found.default_watts == pytest.approx(by_hand([700] * 10))
    assert found.guaranteed_watts == pytest.approx(by_hand([700, *[400] * 9]))
    assert found.lowest_watts == pytest.approx(by_hand([700, *[200] * 9]))
    assert found.cap_band_watts == pytest.approx(57_000.0)
    assert found.fits
    # The caps that fit are the highest whole watts that do.
    ((low, high),) = found.fitting_watts.values()
    assert low == high
    assert by_hand([700, *[low] * 9]) <= 60_000.0 < by_hand([700, *[low + 1.0] * 9])


def test_a_line_for_what_servers_draw_lets_more_of_them_in_and_the_controller_agrees() -> None:
    told = {"worstWatts": 2000.0, "idleWatts": 700.0}
    line = {"worstAtRestWatts": 1200.0, "wattsPerGpuWatt": 0.1}
    selects = {"nodeSelector": {"rack": "a"}}
    nodes = [make_node(f"n{i}") for i in range(10)]
    found = {}
    for hosts in (told, told | line):
        spec: dict[str, Any] = {
            "ratingWatts": 40_000.0, "members": selects, "nonGpuPerNode": hosts
        }  # fmt: skip
        domain = make_domain("rack", **spec)
        (outlook,) = looked([domain], rack=10)
        watching = make_domain("rack", enforcement="DryRun", **spec)
        accepted = accept([watching], [domain], Site([], nodes, [], profiles()))
        assert outlook.fits == (not accepted.refusals)
        found[len(hosts)] = outlook
    assert (found[2].fits, found[4].fits) == (False, True)
    # What boards and servers draw at their default limits, and I2, are as they were.
    assert found[2].default_watts == found[4].default_watts
    assert found[2].survivable_watts == found[4].survivable_watts


def test_a_cap_too_high_does_not_fit_and_an_unknown_one_is_not_judged() -> None:
    (found,) = looked([rack(50_000.0)], rack=10, board=replace(BOARD, guaranteed_watts=450.0))
    assert found.guaranteed_watts is not None
    assert found.guaranteed_watts > 50_000.0
    assert not found.fits
    (untold,) = looked([rack(50_000.0)], rack=10)
    assert untold.guaranteed_watts is None
    assert untold.fits


@pytest.mark.parametrize("servers", [5, 9, 10, 11, 13, 16])
def test_i1_what_fits_at_the_lowest_limits_is_what_the_controller_accepts(servers: int) -> None:
    domains = [make_domain("row", ratingWatts=58_000.0), rack(55_000.0)]
    nodes = [make_node(f"n{i}") for i in range(servers)]
    watching = [
        d.model_copy(update={"spec": d.spec.model_copy(update={"enforcement": "DryRun"})})
        for d in domains
    ]
    accepted = accept(watching, domains, Site([], nodes, [], profiles()))
    outlooks = looked(domains, rack=servers)
    assert bool(accepted.refusals) != all(one.fits for one in outlooks)


def test_i2_takes_its_share_where_a_breaker_bears_too_little() -> None:
    (calm,) = looked([rack(60_000.0)], rack=6)
    assert calm.survivable_share == 1.0
    (tight,) = looked([rack(36_000.0)], rack=10)
    assert 36_000.0 < tight.survivable_watts <= 1.5 * 36_000.0
    boards = tight.survivable_watts - 10 * 2000.0
    assert tight.survivable_share == pytest.approx(boards / (tight.default_watts - 10 * 2000.0))


def test_what_a_spec_has_to_declare_first_is_told() -> None:
    (found,) = looked([make_domain("rack", loadDeclaredComplete=False)], rack=1)
    assert "loadDeclaredComplete" in found.objection
    (fine,) = looked([make_domain("rack", enforcement="DryRun")], rack=1)
    assert fine.objection == ""
