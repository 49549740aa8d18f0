"""What goes with a domain's draw: load, held bins, boards, new pods; up to the status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capacity.profile_library import shipped_library
from forecasting.engine_question import Beside, Question, Shape
from forecasting.forecast import Forecast
from forecasting.forecast_engine import Engine
from forecasting.load_steps import BY_LOAD, LoadSteps
from forecasting.power_forecast.domain_boards import DomainBoards
from forecasting.power_forecast.draw_aside import DrawAside, demand_history, wanted_values
from forecasting.power_forecast.present_residual import on_present_residual
from forecasting.power_forecast.present_rows import BoardWatts
from forecasting.power_forecast.work_watts import AC_OVER_BOARD, Boards, LoadLine
from forecasting.round.group_answers import answers_of
from forecasting.round.round_asides import ASIDE_AWAY, ASIDE_GAPS, MOST_FAILURES
from forecasting.round.round_group import RoundGroup
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats, History, SeriesId
from forecasting.settlement import Judge, settled
from forecasting.targets import Target, target_of
from forecasting.tiers.direct_ridge import Ridge
from tests.forecasting.test_domain_boards import boards as boards_of
from tests.forecasting.test_domain_boards import pod
from tests.forecasting.test_forecaster_process import DAY, START_SECONDS
from tests.forecasting.test_start_leads import Row
from tests.scheduler_plugin.placement_cluster import node_object, pod_object
from wattpack.api import DemandForecast
from wattpack.errors import InputError
from wattpack.kube.port import NODES, PODS, ObjectList, Resource, UnavailableError
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

NAME = SeriesId("power/row")
SERVING = {"wattpack.io/workload": "decoder-decode"}
H200 = shipped_library().profiles["H200-SXM"]


def load_of(days: int, seed: int = 0) -> Floats:
    t = np.arange(days * DAY)
    noise = np.random.default_rng(seed).normal(0, 1, len(t))
    return np.maximum(50 + 30 * np.sin(2 * np.pi * t / DAY) + noise, 0)


def history(values: Floats) -> History:
    return History([NAME], values[None], values.size * 600)


# -- load ------------------------------------------------------------------------------------------


def test_boards_of_several_types_share_a_load_by_their_number() -> None:
    a100 = shipped_library().profiles["A100-SXM"]
    both = [Boards(H200, None, 6), Boards(a100, None, 2)]
    line = LoadLine.shared(both, 10.0)
    assert line.full_load == pytest.approx(80.0)
    idle = AC_OVER_BOARD * sum(one.idle_watts for one in both)
    busy = AC_OVER_BOARD * sum(one.busy_watts for one in both)
    assert line.watts(np.array([0.0, 40.0, 80.0, 200.0])) == pytest.approx(
        [idle, (idle + busy) / 2, busy, busy]
    )
    with pytest.raises(InputError, match="boards"):
        LoadLine.shared([], 10.0)


def test_pods_with_the_workloads_name_serve_its_load() -> None:
    found = boards_of([pod("x", "a", 4, workload="decoder-decode"), pod("y", "b", 2)])
    line = found.line("row", "decoder-decode", 5.0)
    assert line is not None
    assert line.full_load == pytest.approx(20.0)
    assert found.line("rack", "decoder-decode", 5.0) is None
    assert found.line("row", "encoder", 5.0) is None


def steps_by_load(load: Floats, draw: Floats, ceiling: float) -> tuple[Floats, bool]:
    shape = Shape(600, 36, (0.5, 0.9, 0.99))
    asides = {NAME: DrawAside(load[None] * 40.0)}
    direct = np.zeros((1, 36, len(shape.grid)))
    made, told = LoadSteps(shape).told(history(draw), asides, np.array([ceiling]), direct)
    return made[0], bool(told[0])


def test_load_that_explains_the_draw_tells_its_steps_below_what_caps_enforce() -> None:
    load = load_of(6)
    rest = np.random.default_rng(5).normal(1000, 20, load.size)
    made, told = steps_by_load(load, 40.0 * load * 1.1 + rest, 4200.0)
    assert told
    assert made.max() <= 4200.0 + 1e-6
    assert (np.diff(made, axis=1) >= 0).all()
    coming = load_of(7)[-DAY : -DAY + 36]
    middle = made[:, 4]
    assert middle == pytest.approx(np.minimum(44 * coming + 1000, 4200), rel=0.05)


def with_other_work(load: Floats, bins: int, watts: float) -> Floats:
    """Draw of a load beside which other work began so many bins ago."""
    rest = np.random.default_rng(5).normal(1000, 5, load.size)
    rest[load.size - bins :] += watts
    return 40.0 * load + rest


@pytest.mark.parametrize("bins", [1, 3, 12, DAY])
def test_work_that_comes_beside_the_load_stays_from_its_first_bin_on(bins: int) -> None:
    load = load_of(7)
    made, told = steps_by_load(load, with_other_work(load, bins, 3000.0), np.nan)
    assert told
    coming = load_of(8)[-DAY : -DAY + 36]
    assert made[:, 4] == pytest.approx(40.0 * coming + 4000.0, rel=0.06)


def test_a_load_that_doubles_is_no_break_of_what_it_does_not_tell() -> None:
    load = load_of(7)
    load[-12:] *= 2.0
    draw = with_other_work(load, 12, 0.0)
    moved, fit = on_present_residual(DrawAside(40.0 * load[None]), draw, 600)
    assert fit.explained > 0.99
    assert moved is draw


def test_a_residual_of_gaps_alone_has_no_level() -> None:
    load = load_of(7)
    nothing = np.full(load.size, np.nan)
    moved, fit = on_present_residual(DrawAside(40.0 * load[None]), nothing, 600)
    assert fit.explained == 0.0
    assert np.isnan(moved).all()


def test_pods_that_came_since_are_in_steps_that_load_tells() -> None:
    load, name = load_of(11), SeriesId("power/row")
    draw = 44 * load + 1000 + np.random.default_rng(5).normal(0, 20, load.size)
    shape, past = Shape(600, 36, (0.5, 0.99)), slice(0, 10 * DAY)
    middle = []
    for placed in (0.0, 700.0):
        beside = Beside(asides={name: DrawAside(40.0 * load[None, past], placed_watts=placed)})
        asked = Question(
            history(draw[past]), {name: ("power", "domain")}, np.array([np.nan]), beside=beside
        )
        answer = Engine(shape, [Ridge()]).issue(asked)
        assert answer.flags[0][-2:] == (BY_LOAD, "uncalibrated")
        middle.append(answer.quantiles[0, :, 0])
    assert middle[1] - middle[0] == pytest.approx(np.full(36, 700.0), rel=0.02)


def test_load_that_explains_little_tells_nothing() -> None:
    draw = 1000 + 300 * np.random.default_rng(1).random(6 * DAY)
    made, told = steps_by_load(load_of(6), draw, np.nan)
    assert not told
    assert not made.any()


def test_a_clock_that_is_set_back_costs_the_load_a_round_and_nothing_else() -> None:
    target = Target("power", "row", NAME, "domain", 36, 600, (0.5, 0.99), None, 1)
    load = load_of(11)
    draw = 44 * load + 1000 + np.random.default_rng(5).normal(0, 20, load.size)

    name = target.identity
    state, told, pools = (
        ForecasterState(rehearsed=frozenset([name])),
        [],
        {name: ("power", "domain")},
    )
    for end in (10 * DAY + 1, 10 * DAY + 2, 10 * DAY + 1, 10 * DAY + 2, 10 * DAY + 3):
        past = slice(end - 10 * DAY, end)
        source = History([name], draw[None, past], end * 600)
        asides = {name: DrawAside(40.0 * load[None, past])}
        state, (answer,) = answers_of(state, RoundGroup([target], source, pools, asides))
        assert answer.error is None
        told.append(BY_LOAD in answer.flags)
    assert told == [True, True, False, True, True]


def test_a_group_that_fails_together_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [
        Target("power", name, SeriesId(name), "domain", 36, 600, (0.5, 0.99), None, 1)
        for name in ("a", "b")
    ]
    names = [target.identity for target in targets]
    values = np.stack([load_of(10), load_of(10, seed=1)])
    issue = Engine.issue

    def only_alone(engine: Engine, question: Question) -> Forecast:
        if len(question.history.series) > 1:
            raise ArithmeticError("together")
        return issue(engine, question)

    monkeypatch.setattr(Engine, "issue", only_alone)
    state, pools = (
        ForecasterState(rehearsed=frozenset(names)),
        dict.fromkeys(names, ("power", "domain")),
    )
    history = History(names, values, values.shape[1] * 600)
    _, answers = answers_of(state, RoundGroup(targets, history, pools, {}))
    for answer in answers:
        assert answer.error is not None
        assert not isinstance(answer.error, InputError)


def test_trust_is_lost_below_seventy_and_won_at_eighty_per_cent() -> None:
    load, random = load_of(6), np.random.default_rng(2)
    watts = 40.0 * load
    noise = random.normal(0, 1, load.size) * watts.std()
    shape = Shape(600, 36, (0.5, 0.99))
    steps = LoadSteps(shape)

    def told(noise_share: float) -> bool:
        draw = 2000 + watts + noise_share * noise
        asides = {NAME: DrawAside(watts[None])}
        direct = np.zeros((1, 36, len(shape.grid)))
        return bool(steps.told(history(draw), asides, np.full(1, np.nan), direct)[1][0])

    # Shares of variance: 0.75, 0.9, 0.75, 0.6.
    assert [told(share) for share in (0.577, 0.33, 0.577, 0.816)] == [False, True, True, False]


# -- held bins -------------------------------------------------------------------------------------


def test_a_bin_under_caps_counts_as_what_its_load_wanted() -> None:
    load = load_of(4)
    wanted = 500 + 40 * load
    held = np.zeros(load.size)
    held[-30:-10] = 0.8
    draw = np.where(held > 0, np.minimum(wanted, 1500.0), wanted)
    day = slice(-30, -10)
    by_load = demand_history(history(draw), {NAME: DrawAside(40 * load[None], held)}, DAY)[0]
    assert by_load[day] == pytest.approx(np.maximum(wanted, draw)[day], rel=1e-6)
    unknown = demand_history(history(draw), {NAME: DrawAside(held_share=held)}, DAY)[0]
    assert np.isnan(unknown[day]).all()
    for made in (by_load, unknown):
        rest = held == 0
        assert made[rest] == pytest.approx(draw[rest])


def under_caps(load: Floats) -> tuple[Floats, Floats, slice]:
    """Demand, the draw that caps cut in twenty bins of the last day, and these."""
    wanted, day = 500 + 40 * load, slice(-30, -10)
    draw = wanted.copy()
    draw[day] = np.minimum(draw[day], 1500.0)
    return wanted, draw, day


def test_bins_of_which_nobody_told_are_not_surely_free() -> None:
    load = load_of(4)
    wanted, draw, day = under_caps(load)
    held = np.full(load.size, np.nan)
    held[: 3 * DAY] = 0.0
    aside = DrawAside(40 * load[None], held)
    assert demand_history(history(draw), {NAME: aside}, DAY)[0][day] == pytest.approx(
        wanted[day], rel=0.01
    )
    # Without a load that tells what was wanted the draw is the least that was.
    alone = DrawAside(held_share=held)
    assert demand_history(history(draw), {NAME: alone}, DAY)[0] == pytest.approx(draw)
    assert wanted_values(history(draw), {NAME: alone}) is None


def test_an_outage_of_the_caps_report_beside_held_bins_is_held() -> None:
    load = load_of(4)
    _, draw, _ = under_caps(load)
    held = np.zeros(load.size)
    held[-30:-10] = 0.8
    held[-20:-17] = np.nan
    made = demand_history(history(draw), {NAME: DrawAside(held_share=held)}, DAY)[0]
    assert np.isnan(made[-20:-17]).all()


# -- work that came since --------------------------------------------------------------------------


def test_a_pod_that_came_or_went_is_a_change_of_all_domains_above_it() -> None:
    before = boards_of([pod("old", "b", 2), pod("stays", "a", 1)])
    at = {
        "type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(seconds_to_ns(70))
    }  # fmt: skip
    new = pod("new", "b", 4)
    new["status"]["conditions"] = [at]
    after = boards_of([new, pod("stays", "a", 1)])
    found = after.since(before, 100.0).changes()
    rows = sorted(found["row"])
    assert [(c.at_seconds, np.sign(c.watts)) for c in rows] == [(70.0, 1.0), (100.0, -1.0)]
    assert found["rack"] == found["row"]
    assert rows[0].watts == pytest.approx(-2 * rows[1].watts)
    assert after.since(DomainBoards(), 100.0).changes()["rack"] == [rows[0]]


def test_a_pod_that_went_stays_gone_at_every_look_of_its_bin() -> None:
    looks = [boards_of([pod("old", "b", 2)]), boards_of([]), boards_of([]), boards_of([])]
    times, seen, told = (100.0, 700.0, 710.0, 2 * 86400.0), DomainBoards(), []
    for look, now_seconds in zip(looks, times, strict=True):
        seen = look.since(seen, now_seconds)
        told.append([one.at_seconds for one in seen.changes().get("row", [])])
    assert told[1:] == [[700.0], [700.0], []]


# -- the process -----------------------------------------------------------------------------------


class Served(Row):
    """Sixteen boards in the row, six of them at work for one service."""

    def __init__(self, **spec: Any) -> None:
        super().__init__()
        for name in ("row", "rack"):
            self.kube.delete(DemandForecast.meta.resource, name, "power")
        for name in ("a", "b"):
            node = dict(self.kube.get(NODES, name))
            node["metadata"]["labels"] = {"wattpack.io/gpu-model": "H200-SXM"}
            node = self.kube.replace(NODES, node)
            node["status"] = node_object(name)["status"]
            self.kube.replace(NODES, node, subresource="status")
        self.served("server", 6)
        line = LoadLine.shared([Boards(H200, None, 6)], 20.0)
        self.load = load_of(12, seed=3)
        self.source.values["load"] = self.load
        self.source.values["domain:row"] = 3000 + line.watts(self.load)
        self.source.values["held"] = np.zeros(12 * DAY)
        self.add("row", **spec)

    def served(self, name: str, gpus: int, bound_seconds: float = 0.0) -> None:
        body = pod_object(
            name, gpus, labels={"wattpack.io/workload": "decoder-decode"}, nodeName="a"
        )
        body["metadata"]["namespace"] = "team"
        made = self.kube.create(PODS, body, "team")
        scheduled = {"type": "PodScheduled", "status": "True"}
        at = {"lastTransitionTime": rfc3339(seconds_to_ns(bound_seconds))}
        made["status"] = {"phase": "Running", "conditions": [scheduled | at]}
        self.kube.replace(PODS, made, "team", subresource="status")


LOAD = [{"series": "load", "workload": "decoder-decode", "perBoard": 20}]


def test_what_runs_is_told_apart_from_what_may_start_on_free_boards() -> None:
    world = Served()
    assert world.process.tick()
    status = world.status("row")
    running = status["running"]
    assert list(running) == ["p50", "p95", "p99"]
    assert sorted(running.values()) == list(running.values())
    # Ten of sixteen boards are free: all of them at work draw more than six.
    assert all(running[level] < status[level] for level in running)
    assert running["p99"] > status["now"]


def test_steps_keep_what_a_rehearsal_learned_where_boards_tell_the_peaks() -> None:
    world = Served()
    assert world.process.tick()
    (engine,) = world.process.state.engines.values()
    rehearsed = engine.memory.points
    assert ("power", "domain/boards") not in rehearsed
    assert rehearsed["power", "domain"].is_in_force
    corrected = world.status("row")["quantiles"]
    engine.memory = replace(engine.memory, points={})
    assert world.process.tick()
    assert world.status("row")["quantiles"] != corrected


def test_promises_teach_whoever_made_them() -> None:
    names = [SeriesId(f"power/row-{i}") for i in range(3)]
    t = np.arange(12 * DAY)
    values = 100 + 40 * np.sin(2 * np.pi * t / DAY) + np.arange(3)[:, None]
    shape, pools = Shape(600, 36, (0.5, 0.99)), dict.fromkeys(names, ("power", "domain"))
    engine, nothing = Engine(shape, [Ridge()]), np.full(3, np.nan)
    known = dict.fromkeys(names, BoardWatts(50.0, 200.0, 120.0))
    for bins in range(38):
        end = 11 * DAY + bins
        past = History(names, values[:, end - 10 * DAY : end], end * 600)
        # Boards are known from the second round on: what was promised before was the models'.
        boards = {} if bins == 0 else known
        engine.issue(Question(past, pools, nothing, boards=boards))
    learned = engine.memory.peaks
    assert learned["power", "domain"].windows == 3
    of_boards = learned.get(("power", "domain/boards"))
    assert of_boards is None or of_boards.windows == 0
    assert engine.memory.points["power", "domain"].windows > 2.9
    assert engine.memory.points["power", "domain/boards"].windows < 2


def test_without_known_boards_nothing_is_told_apart() -> None:
    world = Row()
    assert world.process.tick()
    assert "running" not in world.status("row")


def test_a_round_without_pods_goes_on_with_the_boards_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Served()
    assert world.process.tick()
    before = world.status("row")["running"]
    listed = world.kube.list

    def without_pods(resource: Resource, *args: Any, **kwargs: Any) -> ObjectList:
        if resource == PODS:
            raise UnavailableError("no answer")
        return listed(resource, *args, **kwargs)

    monkeypatch.setattr(world.kube, "list", without_pods)
    assert world.process.tick()
    assert world.status("row")["running"] == before
    assert "lead" not in world.status("row")


def test_a_pod_that_came_since_is_in_the_whole_and_not_in_what_ran() -> None:
    before, after = Served(), Served()
    after.served("new", 2, bound_seconds=START_SECONDS + 30)
    for world in (before, after):
        world.clock.advance_seconds(60)
        assert world.process.tick()
    assert after.status("row")["p50"] > before.status("row")["p50"]
    # What holds boards now counts as held; its draw is not in the anchors of what ran.
    assert after.status("row")["running"]["p50"] <= after.status("row")["p50"]


def test_load_tells_the_steps_and_says_so() -> None:
    world = Served(load=LOAD)
    nobody = [LOAD[0] | {"workload": "train-moe"}]
    world.add("unserved", target={"powerDomain": "row", "series": "domain:row"}, load=nobody)
    assert world.process.tick()
    assert BY_LOAD in world.status("row")["flags"]
    assert BY_LOAD not in world.status("unserved")["flags"]
    for name in ("row", "unserved"):
        assert world.ready(name)["status"] == "True"


def test_an_aside_that_cannot_be_read_costs_the_correction_alone() -> None:
    world = Served(heldSeries="held")
    world.source.failing = {"held"}
    assert world.process.tick()
    status = world.status("row")
    assert ASIDE_AWAY in status["flags"]
    assert world.ready("row")["status"] == "True"
    assert status["p99"] > status["now"]


def misspelt(world: Served) -> None:
    del world.source.values["held"], world.source.values["load"]


def ended(world: Served) -> None:
    world.source.values["held"][9 * DAY :] = np.nan
    world.source.values["load"][9 * DAY :] = np.nan


def gappy(world: Served) -> None:
    world.source.values["held"][::12] = np.nan
    world.source.values["load"][::12] = np.nan


def unserved(world: Served) -> None:
    world.kube.delete(PODS, "server", "team")


@pytest.mark.parametrize(
    ("spec", "spoil", "flag"),
    [
        ({"heldSeries": "held"}, misspelt, ASIDE_AWAY),
        ({"load": LOAD}, misspelt, ASIDE_AWAY),
        ({"heldSeries": "held"}, ended, ASIDE_AWAY),
        ({"load": LOAD}, ended, ASIDE_AWAY),
        ({"load": LOAD}, unserved, ASIDE_AWAY),
        ({"heldSeries": "held"}, gappy, ASIDE_GAPS),
        ({"load": LOAD}, gappy, ASIDE_GAPS),
    ],
)
def test_what_goes_with_a_draw_and_is_not_there_is_said(
    spec: dict[str, Any], spoil: Callable[[Served], None], flag: str
) -> None:
    whole, short = Served(**spec), Served(**spec)
    spoil(short)
    for world in (whole, short):
        assert world.process.tick()
        assert world.ready("row")["status"] == "True"
    told = {ASIDE_AWAY, ASIDE_GAPS}
    assert not told & set(whole.status("row").get("flags", ()))
    assert told & set(short.status("row")["flags"]) == {flag}


@pytest.mark.parametrize(
    ("doubted", "flagged"),
    [({"held"}, True), ({"load"}, True), ({"held", "load", "domain:row"}, True), (set(), False)],
)
def test_a_forecast_whose_load_or_held_share_is_partial_is_partial(
    doubted: set[str], flagged: bool
) -> None:
    world = Served(heldSeries="held", load=LOAD)
    world.source.doubted = doubted
    assert world.process.tick()
    flags = world.status("row").get("flags", [])
    assert flags.count("partial") == flagged
    assert world.ready("row")["status"] == "True"


def test_a_partial_series_of_another_domain_flags_nobody_else() -> None:
    world = Served(heldSeries="held")
    target = {"powerDomain": "row", "series": "domain:row"}
    world.add("other", target=target, heldSeries="held-other")
    world.source.values["held-other"] = np.zeros(12 * DAY)
    world.source.doubted = {"held-other"}
    assert world.process.tick()
    assert "partial" in world.status("other")["flags"]
    assert "partial" not in world.status("row").get("flags", [])


def test_a_service_that_sleeps_misses_nothing() -> None:
    world = Served(load=LOAD)
    unserved(world)
    world.source.values["load"][:] = np.nan
    assert world.process.tick()
    assert ASIDE_AWAY not in world.status("row")["flags"]


def test_a_history_that_does_not_answer_is_not_asked_for_every_domain() -> None:
    world = Served(heldSeries="held")
    for i in range(2 * MOST_FAILURES):
        target = {"powerDomain": "row", "series": "domain:row"}
        world.add(f"more-{i}", target=target, heldSeries=f"held-{i}")
    world.source.failing = {"held", *(f"held-{i}" for i in range(2 * MOST_FAILURES))}
    assert world.process.tick()
    errors = sum(ASIDE_AWAY in world.status(f"more-{i}")["flags"] for i in range(10))
    assert errors == 10


def test_days_under_caps_do_not_teach_that_little_is_wanted() -> None:
    free, capped = Served(), Served(heldSeries="held")
    for world in (free, capped):
        wanted = world.source.values["domain:row"]
        held = np.zeros(wanted.size, dtype=bool)
        evening = (np.arange(wanted.size) % DAY >= 20) & (np.arange(wanted.size) % DAY < 60)
        held[evening & (np.arange(wanted.size) >= 8 * DAY)] = True
        world.source.values["domain:row"] = np.where(held, np.minimum(wanted, 5200.0), wanted)
        world.source.values["held"] = held.astype(float)
        assert world.process.tick()

    def highest(world: Served) -> float:
        paths = world.status("row")["quantiles"]
        (middle,) = [path["values"] for path in paths if path["level"] == 0.5]
        return float(max(middle))

    assert highest(capped) > 1.05 * highest(free)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"load": LOAD}, "powerDomain"),
        ({"heldSeries": "held"}, "powerDomain"),
        ({"load": [LOAD[0] | {"perBoard": 0}]}, "perBoard"),
    ],
)
def test_a_load_without_a_domain_or_a_rate_is_refused(spec: dict[str, Any], words: str) -> None:
    target = {"series": "x"} if "powerDomain" in words else {"powerDomain": "r", "series": "x"}
    body = {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "DemandForecast",
        "metadata": {"name": "n", "namespace": "ns"}, "spec": {"target": target, **spec},
    }  # fmt: skip
    with pytest.raises(InputError, match=words):
        target_of(body)


def held_engine(asides: bool) -> Engine:
    """After four days under a cap that holds the upper half of six domains' draw."""
    rng, days = np.random.default_rng(5), 14
    t, names = np.arange(days * DAY), [SeriesId(f"power/row-{i}") for i in range(6)]
    wanted = 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 5, (len(names), len(t)))
    held = (wanted > 118) & (t >= 10 * DAY)
    drawn = np.where(held, 118.0, wanted)
    shape = Shape(600, 36, (0.5, 0.99))
    engine, pools = Engine(shape, [Ridge()]), dict.fromkeys(names, ("power", "domain"))
    for end in range(10 * DAY, len(t) + 1, 18):
        past = slice(end - 10 * DAY, end)
        beside = {
            name: DrawAside(wanted[i, None, past], held[i, past].astype(float))
            for i, name in enumerate(names)
        }
        source = History(names, (drawn if asides else wanted)[:, past], end * 600)
        nothing = np.full(len(names), np.nan)
        known = Beside({}, beside if asides else {})
        engine.issue(Question(source, pools, nothing, beside=known))
    return engine


def test_bins_under_caps_do_not_teach_corrections_that_less_is_wanted() -> None:
    pool = ("power", "domain")
    free, capped = (held_engine(asides).memory for asides in (False, True))
    at = free.points[pool].levels.index(0.5)
    offsets = [kept.points[pool].offsets(["power/row-0"])[0, at] for kept in (free, capped)]
    assert offsets[1] > offsets[0] - 0.05


def test_a_draw_above_its_promise_is_a_miss_however_many_caps_held() -> None:
    engine = held_engine(True)
    issue = engine.memory.open_issues[-1]
    memory = engine.memory
    end = issue.begin_seconds + 600
    values = np.full((len(issue.series), 10 * DAY), 100.0)
    values[:, -1] = 1.01 * issue.told_peaks.max(axis=1)
    pools = dict.fromkeys(issue.series, ("power", "domain"))
    grid = Shape(600, 36, (0.5, 0.99)).grid
    judge = Judge(grid, pools, wanted=np.full(values.shape, np.nan))
    after = settled(memory, History(issue.series, values, end), judge)
    for name in issue.series:
        missed = after.record(name).total.violations[0] - memory.record(name).total.violations[0]
        assert missed >= 1
