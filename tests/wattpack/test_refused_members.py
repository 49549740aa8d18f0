"""I1 over random trees: every server that some domain claims counts at most once, where it draws.

The oracle walks wires: it keeps its own table of domains as plain dictionaries, follows one server
at a time from claim to claim, and shares no code with the grid.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from wattpack.power.member_claims import newest_claims
from wattpack.power.power_grid import PowerGrid, accepted_domains

KEYS = ("rack", "row", "os")
SEEDS = 400


@dataclass
class Site:
    """Written domains: what runs of each (None: nothing), what was written last."""

    runs: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    newest: dict[str, dict[str, Any]] = field(default_factory=dict)
    servers: dict[str, dict[str, str]] = field(default_factory=dict)

    def bodies(self) -> list[dict[str, Any]]:
        return [
            {
                "metadata": {"name": name},
                "spec": written(spec),
                "status": {} if self.runs[name] is None else {"acceptedSpec": written(ran)},
            }
            for name, spec in self.newest.items()
            for ran in [self.runs[name] or spec]
        ]

    def grid(self) -> PowerGrid:
        bodies = self.bodies()
        specs = {name: domain.spec for name, domain in accepted_domains(bodies).items()}
        return PowerGrid.of(specs, newest_claims(bodies))

    # The oracle.

    def way_up(self, name: str) -> list[str]:
        """The running domain and those that feed it."""
        way = [name]
        while (ran := self.runs[way[-1]]) is not None and ran["parent"]:
            way.append(ran["parent"])
        return way

    def first_that_runs(self, name: str) -> str | None:
        """By hand over hand along the newest parents, at most once past every domain."""
        for _ in range(len(self.newest) + 1):
            if name not in self.newest:
                return None
            if self.runs[name] is not None:
                return name
            name = self.newest[name]["parent"] or ""
        return None

    def may_count_in(self, server: str) -> tuple[set[str], bool]:
        """Domains directly below which it may count, and whether it has to count at all."""
        labels = self.servers[server]
        sure = {n for n, ran in self.runs.items() if ran is not None and wants(ran, server, labels)}
        loose = {n for n, spec in self.newest.items() if wants(spec, server, labels)} - sure
        leads = {n: self.first_that_runs(n) for n in loose}
        if not sure:
            reached = {lead for lead in leads.values() if lead is not None}
            return lowest(self, reached), bool(reached)
        below = lowest(self, sure)
        for name, lead in leads.items():
            if self.runs[name] is None and lead is not None:
                first = min(below)
                if first in self.way_up(lead):
                    below = below | {lead}
        return lowest(self, below), True


def wants(spec: dict[str, Any], server: str, labels: dict[str, str]) -> bool:
    chosen = spec["selector"]
    by_label = bool(chosen) and all(labels.get(k) == v for k, v in chosen.items())
    return by_label or server in spec["names"]


def lowest(site: Site, names: set[str]) -> set[str]:
    """Those farthest from the root."""
    farthest = max((len(site.way_up(n)) for n in names), default=0)
    return {n for n in names if len(site.way_up(n)) == farthest}


def written(spec: dict[str, Any]) -> dict[str, Any]:
    members = {"nodeSelector": spec["selector"], "nodeNames": spec["names"]}
    above = {"parent": spec["parent"]} if spec["parent"] else {}
    return {"ratingWatts": spec["rating"], "members": members, **above}


def random_site(seed: int) -> Site:
    dice = random.Random(seed)
    site = Site()
    names = [f"d{i}" for i in range(dice.randint(1, 8))]
    servers = [f"n{i}" for i in range(12)]
    for server in servers:
        site.servers[server] = {key: str(dice.randint(0, 2)) for key in KEYS if dice.random() < 0.9}
    running: list[str] = []
    for name in names:
        ran = random_spec(dice, [*running, None, None], servers)
        never = dice.random() < 0.5
        site.runs[name] = None if never else ran
        changed = never or dice.random() < 0.4
        anybody = [*names, "gone", None]
        site.newest[name] = random_spec(dice, anybody, servers) if changed else ran
        if not never:
            running.append(name)
    return site


def random_spec(dice: random.Random, parents: list[Any], servers: list[str]) -> dict[str, Any]:
    keys = dice.sample(KEYS, dice.choice((0, 1, 1, 2)))
    return {
        "parent": dice.choice(parents),
        "rating": float(dice.randint(1, 10**6)),
        "selector": {key: str(dice.randint(0, 2)) for key in keys},
        "names": dice.sample(servers, dice.choice((0, 0, 1, 3))),
    }


@pytest.mark.parametrize("seed", range(SEEDS))
def test_i1_every_server_counts_once_where_its_claims_lead_and_limits_are_the_accepted_ones(
    seed: int,
) -> None:
    site = random_site(seed)
    grid = site.grid()
    for server, labels in site.servers.items():
        allowed, must = site.may_count_in(server)
        feeding = grid.feeding(server, labels)
        assert bool(feeding.domain) is must, (server, feeding)
        if must:
            assert feeding.domain in allowed, (server, feeding, allowed)
            assert list(grid.path(feeding.domain)) == site.way_up(feeding.domain)
    ran = {name: spec["rating"] for name, spec in site.runs.items() if spec is not None}
    assert {name: grid.rating_watts(name) for name in grid.specs} == ran


def test_the_random_sites_have_what_the_property_is_about() -> None:
    """Servers that count aside, deeper, nowhere, and in their own place: each many times."""
    seen = {"aside": 0, "nowhere": 0, "own": 0, "deeper": 0}
    for seed in range(SEEDS):
        site = random_site(seed)
        grid = site.grid()
        for server, labels in site.servers.items():
            feeding = grid.feeding(server, labels)
            sure = [r for r in site.runs.values() if r and wants(r, server, labels)]
            kind = "own" if not feeding.through else "aside" if feeding.domain else "nowhere"
            seen["deeper" if kind == "aside" and sure else kind] += 1
    assert min(seen.values()) > 20, seen
