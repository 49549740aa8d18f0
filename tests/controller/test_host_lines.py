"""I1 with servers that draw less beside their GPUs when these are held down."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.guaranteed_case import case_watts
from controller.topology import build_topology
from simulation.inference_row.row_under_policy import polca_scenario
from simulation.inference_row.served_rows import served_row
from simulation.row_control.product_topology import product_topology
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS
from tests.controller.builders import make_tree
from tests.controller.test_topology import make_domain, make_node, profiles
from wattpack.errors import SafetyError
from wattpack.power.feasibility import LoadTree, guaranteed_case_watts, size_guaranteed_caps
from wattpack.power.host_line import HostLines, host_lines

BOARDS = 8
DEFAULT, LOWEST = 700.0, 200.0
SPREAD_OF_EIGHT = 1.05 * (1.0 + 0.09 / 8**0.5)


def a_row(servers: int, rating_watts: float) -> LoadTree:
    tree = make_tree((-1,), [rating_watts])
    return LoadTree(tree, np.zeros(servers, np.int64), np.arange(servers * BOARDS) // BOARDS)


def lines(servers: int, at_rest: float = 2800.0, per_gpu_watt: float = 0.1) -> HostLines:
    return HostLines(np.full(servers, at_rest), np.full(servers, per_gpu_watt))


def case(load: LoadTree, caps: float, of: HostLines | None, fixed: int = 0) -> float:
    n = load.n_gpus
    held = np.arange(load.n_nodes) < fixed
    worst = np.full(load.n_nodes, 3300.0)
    return float(
        guaranteed_case_watts(load, np.full(n, caps), np.full(n, DEFAULT), worst, held, of)[0]
    )


def test_servers_held_down_count_by_their_line_and_those_at_default_limits_at_their_worst() -> None:
    load = a_row(20, 1e6)
    by_line = 2800.0 + 0.1 * BOARDS * LOWEST * SPREAD_OF_EIGHT
    spared = 19 * (3300.0 - by_line) / load.efficiency[0]
    assert case(load, LOWEST, lines(20)) == pytest.approx(case(load, LOWEST, None) - spared)


def test_a_server_that_nothing_holds_down_draws_its_worst() -> None:
    load = a_row(20, 1e6)
    by_line = 2800.0 + 0.1 * BOARDS * LOWEST * SPREAD_OF_EIGHT
    spared = 14 * (3300.0 - by_line) / load.efficiency[0]
    spared_of = case(load, LOWEST, None, fixed=5) - case(load, LOWEST, lines(20), fixed=5)
    assert spared_of == pytest.approx(spared)


@given(
    caps=st.floats(LOWEST, DEFAULT),
    at_rest=st.floats(0.0, 3300.0),
    per_gpu_watt=st.floats(0.0, 1.0),
)
def test_a_line_never_counts_more_than_the_worst_nor_less_than_it_says(
    caps: float, at_rest: float, per_gpu_watt: float
) -> None:
    load = a_row(20, 1e6)
    told = case(load, caps, lines(20, at_rest, per_gpu_watt))
    without = case(load, caps, None)
    rest = (without - 20 * 3300.0 / load.efficiency[0]) + 20 * at_rest / load.efficiency[0]
    assert rest - 1e-6 <= told <= without + 1e-6


def test_guaranteed_caps_are_as_high_as_the_line_allows() -> None:
    load = a_row(20, 150_000.0)
    low, high, worst = np.full(160, LOWEST), np.full(160, DEFAULT), np.full(20, 3300.0)
    held = np.zeros(20, dtype=np.bool_)
    by_worst = size_guaranteed_caps(load, low, high, high, worst, held)
    by_line = size_guaranteed_caps(load, low, high, high, worst, held, lines(20))
    assert by_line.min() > by_worst.max() + 10.0
    assert case(load, float(by_line[0]), lines(20)) <= 150_000.0
    assert case(load, float(by_line[0]) + 1.0, lines(20)) > 150_000.0


def test_no_server_with_a_line_is_none_at_all() -> None:
    assert host_lines([None, None], np.ones(2)) is None
    mixed = host_lines([None, (2000.0, 0.1)], np.full(2, 0.94))
    assert mixed is not None
    worst = mixed.worst_watts(np.full(2, 3000.0), np.full(2, 500.0), np.arange(2))
    assert worst[0] == 3000.0
    assert worst[1] == pytest.approx(0.94 * (2000.0 + 0.1 * 500.0 * 1.05 * 1.09))


def test_what_a_domain_declares_raises_its_guaranteed_caps_and_keeps_i1() -> None:
    told = {"worstWatts": 2000.0, "idleWatts": 700.0}
    by_line = {**told, "worstAtRestWatts": 1200.0, "wattsPerGpuWatt": 0.1}
    nodes = [make_node("n0"), make_node("n1")]
    made = [
        build_topology(
            [make_domain("row", ratingWatts=13_500.0, members={"nodeNames": ["n0", "n1"]},
                         nonGpuPerNode=hosts)],
            [], nodes, [], profiles(),
        )
        for hosts in (told, by_line)
    ]  # fmt: skip
    assert made[0].host_lines is None
    assert made[1].guaranteed_watts.min() > made[0].guaranteed_watts.max()
    topology = made[1]
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    fixed = np.zeros(topology.n_nodes, dtype=np.bool_)
    assert case_watts(topology, load, topology.guaranteed_watts, fixed)[0] <= 13_500.0
    # I2 and estimates go by the worst, as before.
    assert np.array_equal(topology.node_worst_watts, made[0].node_worst_watts)


@pytest.mark.parametrize("row", ["h100_peak", "h200_peak"])
def test_43_servers_on_a_rating_of_40_measured_peaks_need_the_line(row: str) -> None:
    served = served_row(row)
    made = polca_scenario(43, 1, served.power, gpu_model=served.times.gpu_model)
    by_line = made.model_copy(update={"row": made.row.model_copy(update={"host_line": True})})
    priority = np.zeros(43 * BOARDS, dtype=np.int64)
    with pytest.raises(SafetyError, match="domain row could draw 24"):
        product_topology(RowPlant(made, START_NS), priority)
    caps = product_topology(RowPlant(by_line, START_NS), priority).guaranteed_watts
    assert 220.0 < caps.min() <= caps.max() < 250.0
