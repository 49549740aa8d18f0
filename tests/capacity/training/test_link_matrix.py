"""Links are refused where they make no sense, and rings keep to one kind of network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from capacity.bench.measurement_row import read_rows
from capacity.training.link_matrix import Link, LinkMatrix, fit_link
from capacity.training.rank_placement import first_placements, placed_links, rings_are_pure
from capacity.training.training_job import ParallelLayout
from tests.capacity.training.training_builders import (
    ETHERNET,
    INFINIBAND,
    NVLINK,
    cluster,
    first,
)
from wattpack.errors import InputError

PROFILES = Path(__file__).parents[3] / "capacity/data/profiles"


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e20, "fast", True])
def test_a_link_without_a_sensible_rate_is_refused(rate: object) -> None:
    with pytest.raises(InputError, match="bytes_per_second"):
        Link(rate)  # type: ignore[arg-type]


def test_a_pair_of_classes_without_a_link_is_named() -> None:
    with pytest.raises(InputError, match="a link of a and b"):
        LinkMatrix.from_levels([1, 1], NVLINK, {("a", "a"): INFINIBAND}, ["a", "b"])


def test_rates_that_are_not_numbers_are_refused() -> None:
    links = cluster(2, 1)
    rate = links.bytes_per_second.copy()
    rate[0, 1] = np.nan
    with pytest.raises(InputError, match="bytes_per_second"):
        LinkMatrix(rate, links.latency_seconds, links.host, links.nic_class)


def test_a_ring_through_several_cards_of_a_host_uses_all_of_them() -> None:
    links = cluster(2, 4)
    one = placed_links(links, first(links, ParallelLayout(data=2, tensor=4))[None])
    all_of_them = placed_links(links, first(links, ParallelLayout(data=8))[None])
    assert one.ring_rate[0, 0] == INFINIBAND.bytes_per_second
    assert all_of_them.ring_rate[0, 0] == 4 * INFINIBAND.bytes_per_second


def test_between_two_classes_only_the_pipeline_crosses() -> None:
    links = cluster(4, 4, classes=["a", "b", "a", "b"])
    ranks = first(links, ParallelLayout(data=2, tensor=4, pipeline=2))
    assert rings_are_pure(links, ranks[None])[0]
    assert placed_links(links, ranks[None]).boundary_rate[0, 0] == ETHERNET.bytes_per_second
    assert not list(first_placements(links, ParallelLayout(data=4, tensor=4)))


def test_taking_hosts_away_keeps_their_links() -> None:
    links = cluster(3, 2, classes=["a", "b", "b"]).with_pair(1, 2, Link(7e9))
    fewer = links.take(np.array([5, 2, 3, 4]))
    assert fewer.nic_class == ("b", "b")
    assert fewer.host.tolist() == [0, 0, 1, 1]
    assert fewer.bytes_per_second[0, 2] == 7e9


def test_measured_collectives_give_the_link_inside_a_host() -> None:
    """The shipped rows of two H200: about 307 GB/s a direction by all-reduce, 367 by send."""
    link = fit_link(read_rows(PROFILES / "h200-collectives.jsonl.gz"))
    assert 250e9 < link.bytes_per_second < 400e9
    assert 5e-6 < link.latency_seconds < 40e-6
    with pytest.raises(InputError, match="collectives"):
        fit_link([])


def test_pairs_of_hosts_can_be_told_one_by_one() -> None:
    links = cluster(3, 2)
    for a, b in pairwise(range(3)):
        links = links.with_pair(a, b, Link(1e9 * (a + 1)))
    assert links.bytes_per_second[0, 2] == 1e9
    assert links.bytes_per_second[4, 3] == 2e9
    assert links.bytes_per_second[0, 5] == INFINIBAND.bytes_per_second
