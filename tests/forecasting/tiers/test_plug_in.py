"""Strangers behind the interface: sound ones serve, all others cost only themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from forecasting.engine_question import Shape
from forecasting.forecast import LAST_DAY, LIMIT
from forecasting.forecaster import Forecaster, Provenance
from forecasting.lightgbm_library import lightgbm_problem
from forecasting.series_source import Floats, History
from forecasting.tier_panel import TierPanel
from forecasting.tiers import roster
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.naive import SeasonalNaive
from forecasting.tiers.plug_in import GROUP, TAKEN, PlugIn, load_plug_ins
from forecasting.tiers.roster import make_roster
from forecasting.tiers.tier_sets import all_tiers
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history
from wattpack.errors import InputError


class Stranger(SeasonalNaive):
    """Sound, but for what a test has it do to its answers."""

    def __init__(self, spoil: Callable[[Floats], Any] = lambda made: made) -> None:
        super().__init__()
        self.spoil = spoil

    def quantiles(self, horizon: int, levels: Sequence[float]) -> Floats:
        made: Floats = self.spoil(super().quantiles(horizon, levels))
        return made


def asked(inner: Forecaster) -> tuple[PlugIn, Floats]:
    plug_in = PlugIn("foreign", inner)
    plug_in.update(history(demand(4, 5 * DAY)))
    return plug_in, plug_in.quantiles(12, LEVELS)


def test_a_sound_one_serves_under_its_name() -> None:
    plug_in, made = asked(Stranger())
    sound = SeasonalNaive()
    sound.update(history(demand(4, 5 * DAY)))
    np.testing.assert_array_equal(made, sound.quantiles(12, LEVELS))
    np.testing.assert_array_equal(plug_in.paths(5, 7), sound.paths(5, 7))
    np.testing.assert_array_equal(plug_in.peak_quantile(5, 0.9), sound.peak_quantile(5, 0.9))
    assert plug_in.provenance == Provenance(
        "foreign/seasonal-naive/1",
        sound.provenance.data_until_seconds,
        sound.provenance.fitted_until_seconds,
    )
    assert plug_in.problem == ""


def spoil_row(value: float) -> Callable[[Floats], Floats]:
    def spoil(made: Floats) -> Floats:
        made[2, 3, 1] = value
        return made

    return spoil


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e9])
def test_a_bad_row_costs_that_row(value: float) -> None:
    plug_in, made = asked(Stranger(spoil_row(value)))
    assert np.isnan(made[2]).all()
    assert np.isfinite(made[[0, 1, 3]]).all()
    assert "1 of 4 series" in plug_in.problem


@pytest.mark.parametrize(
    "spoil",
    [lambda made: made[:, :-1], lambda made: made[:3], lambda made: "soon", lambda made: None,
     lambda made: 1 / 0, lambda made: [*made.tolist(), []]],
)  # fmt: skip
def test_nonsense_is_no_answer_and_no_error(spoil: Callable[[Floats], Any]) -> None:
    plug_in, made = asked(Stranger(spoil))
    assert made.shape == (4, 12, len(LEVELS))
    assert np.isnan(made).all()
    assert plug_in.problem


def test_one_that_fails_in_update_is_silent_until_it_does_not() -> None:
    class Moody(Stranger):
        ill = True

        def update(self, batch: History) -> None:
            batch.values[:] = 0.0  # its copy
            if self.ill:
                raise MemoryError("no room")

    inner = Moody()
    plug_in = PlugIn("moody", inner)
    batch = history(demand(2, 5 * DAY))
    plug_in.update(batch)
    assert batch.values.max() > 0
    assert np.isnan(plug_in.quantiles(3, LEVELS)).all()
    assert np.isnan(plug_in.peak_quantile(3, 0.5)).all()
    assert "no room" in plug_in.problem
    inner.ill = False
    plug_in.update(batch)
    assert plug_in.problem == ""
    with pytest.raises(InputError, match="horizon"):
        plug_in.quantiles(0, LEVELS)


class Panic(BaseException):
    """As errors of extensions in Rust are: no ``Exception``."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("raised", [SystemExit(3), Panic("at line 7"), Mute()])
def test_whatever_it_raises_costs_only_itself(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """``sys.exit`` in a stranger's method ended the forecaster."""

    class Rude(Stranger):
        def update(self, batch: History) -> None:
            raise raised

    plug_in = PlugIn("rude", Rude())
    for bins in (4 * DAY, 5 * DAY):
        plug_in.update(history(demand(2, bins)))
        assert np.isnan(plug_in.quantiles(12, LEVELS)).all()
    assert type(raised).__name__ in plug_in.problem
    assert caplog.text.count("plug-in rude") == 1


def test_who_ends_the_process_is_not_held_up() -> None:
    class Interrupted(Stranger):
        def update(self, batch: History) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PlugIn("long", Interrupted()).update(history(demand(2, 5 * DAY)))


@pytest.mark.parametrize(
    "told",
    [None, Provenance("x", "soon", None), Provenance(7, 2**70, -(2**70)), "ridge/2"],  # type: ignore[arg-type]
)
def test_what_it_says_of_itself_is_looked_at(told: Any) -> None:
    """A time that was none ended the round: only answers were looked at."""

    class Odd(Stranger):
        @property
        def provenance(self) -> Provenance:
            found: Provenance = told
            return found

    plug_in, made = asked(Odd())
    said = plug_in.provenance
    assert said.model.split("/")[0] == "foreign"
    until = history(demand(4, 5 * DAY)).until_seconds
    assert 0 <= said.fitted_until_seconds <= said.data_until_seconds <= until
    assert np.isfinite(made).all()


def test_what_it_works_at_beside_the_calls_is_ended() -> None:
    """A plug-in's processes outlived the forecaster."""

    class Busy(Stranger):
        ended = 0

        def close(self) -> None:
            self.ended += 1
            raise OSError("gone already")

    inner = Busy()
    panel = TierPanel(Shape(600, 12, (0.5, 0.99)), (PlugIn("busy", inner), Stranger()))
    panel.close()
    assert inner.ended == 1
    PlugIn("plain", Stranger()).close()


def points(**values: str) -> list[EntryPoint]:
    return [EntryPoint(name, value, GROUP) for name, value in values.items()]


def test_only_named_entry_points_run_and_the_absent_have_a_reason() -> None:
    offered = points(
        good="tests.forecasting.tiers.test_plug_in:Stranger",
        broken="tests.forecasting.tiers.test_plug_in:nowhere",
        unasked="nobody.knows:this",
    )
    loaded, absent = load_plug_ins(["good", "broken", "other", "good"], offered)
    assert [p.provenance.model for p in loaded] == ["good/seasonal-naive/1"]
    assert "nowhere" in absent["broken"]
    assert GROUP in absent["other"]
    assert load_plug_ins([]) == ([], {})


@pytest.mark.parametrize("name", ["x" * 65, "a/b", "a b", "limit", "ridge"])
def test_a_name_that_no_status_can_tell_is_refused(name: str) -> None:
    """A name of 65 letters ended every round, one of a fall-back was taken for it."""
    offered = [EntryPoint(name, "tests.forecasting.tiers.test_plug_in:Stranger", GROUP)]
    assert not load_plug_ins([name], offered)[0]
    assert "name" in load_plug_ins([name], offered)[1][name]


def test_names_of_models_are_taken() -> None:
    own = {tier.provenance.model.split("/")[0] for tier in make_roster(36).tiers}
    assert own | {LAST_DAY, LIMIT} == TAKEN


def test_the_roster_has_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_roster(36)
    names = [tier.provenance.model.split("/")[0] for tier in whole.tiers]
    assert names == ["boosted", "ridge", "smoothing", "last-value"]
    assert not whole.absent
    batch = history(demand(3, 4 * DAY))
    for tier in whole.tiers[1:]:
        tier.update(batch)
    assert isinstance(whole.tiers[1], Ridge)
    shared = {id(tier.records) for tier in whole.tiers if hasattr(tier, "records")}
    assert len(shared) == 1
    monkeypatch.setattr(roster, "lightgbm_problem", lambda: "LightGBM is not installed")
    less = make_roster(36, plug_ins=("nobody",))
    assert len(less.tiers) == 3
    assert set(less.absent) == {"boosted", "nobody"}
    assert lightgbm_problem() == ""


def test_what_an_installation_lacks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tiers = all_tiers(plug_ins=("nobody",))
    assert "without nobody: no installed package offers it" in caplog.text
    assert len(tiers.live(12)) == len(tiers.rehearsing(12)) == 4


def test_statsforecast_is_a_plug_in() -> None:
    pytest.importorskip("statsforecast")
    point = points(mstl="forecasting.tiers.statsforecast_mstl:make")
    (plug_in,), absent = load_plug_ins(["mstl"], point)
    assert not absent
    values = demand(2, 5 * DAY)
    plug_in.update(history(values[:, :-12]))
    made = plug_in.quantiles(12, LEVELS)
    assert plug_in.problem == ""
    assert np.isfinite(made).all()
    error = np.abs(made[1, :, LEVELS.index(0.5)] - values[1, -12:]).mean()
    assert error < 0.35 * values[1, -12:].mean()
    assert (made[1, :, 1] < made[1, :, 3]).all()
