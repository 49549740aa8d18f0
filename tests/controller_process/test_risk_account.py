"""Violations by risk: windows follow one another, and a broken one counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from controller.app.controller_metrics import ControllerMetrics
from controller.app.domain_status import StatusThread
from controller.app.risk_account import BIN_SECONDS, RiskAccount
from forecasting.decisions import risk_bands
from forecasting.forecast_book import ForecastBook, Outlook, Question
from simulation.kube import EmbeddedKube
from tests.controller_process.test_domain_forecasts import Row
from tests.examples import examples
from tests.forecasting.forecast_builders import AUTHORITY, make_forecast

REACH_BINS = 36
LOOK_SECONDS = 30.0
UNIX_SECONDS = 1e8


def outlook(p99: float = 100.0, p95: float = 80.0, **changes: object) -> Outlook:
    body = make_forecast(1e8, p99, p95=p95, p50=50.0, **changes)
    return ForecastBook.of(AUTHORITY, [body]).of_domain("row", Question(1e8, 1000.0))


def fed(
    account: RiskAccount,
    bins: Sequence[float],
    said: Outlook,
    start: float = 0.0,
    promised: Mapping[str, float] = MappingProxyType({}),
) -> float:
    """Ten minutes of each draw; the end."""
    now = start
    for draw in bins:
        for _ in range(int(BIN_SECONDS / LOOK_SECONDS)):
            account.take({"row": draw}, {"row": said}, now, UNIX_SECONDS, promised)
            now += LOOK_SECONDS
    return now


@examples(50)
@given(st.lists(st.sampled_from([10.0, 79.0, 81.0, 99.0, 101.0]), min_size=1, max_size=120))
def test_windows_follow_one_another_and_each_is_broken_at_most_once(draws: list[float]) -> None:
    account = RiskAccount(risk_bands({0: 0.05}))
    end = fed(account, draws, outlook())
    account.take({}, {}, end, UNIX_SECONDS)
    for risk, promised in ((0.01, 100.0), (0.05, 80.0)):
        windows = [draws[i : i + REACH_BINS] for i in range(0, len(draws), REACH_BINS)]
        broken = [max(window) > promised for window in windows]
        whole = [len(window) == REACH_BINS for window in windows]
        assert account.violations["row", risk] == sum(broken)
        counted = sum(b or w for b, w in zip(broken, whole, strict=True))
        assert account.windows["row", risk] == counted


def test_seconds_above_break_nothing_and_only_believed_forecasts_are_held_to_account() -> None:
    account = RiskAccount()
    for second in range(600):
        draw = 1000.0 if second % 60 == 0 else 50.0
        account.take({"row": draw}, {"row": outlook()}, float(second), UNIX_SECONDS)
    account.take({"row": 50.0}, {"row": outlook()}, 600.0, UNIX_SECONDS)
    assert not account.violations
    none = RiskAccount()
    fed(none, [500.0] * 80, outlook(fallback=True))
    fed(none, [500.0] * 80, outlook(p99=1e6), 1e6)
    assert not none.windows
    assert not none.violations


def test_what_runs_is_held_to_the_quantile_that_decisions_take() -> None:
    said = outlook(running={"p50": 30.0, "p95": 40.0, "p99": 50.0})
    account = RiskAccount()
    fed(account, [60.0, 60.0], said, promised={"row": 500.0})
    assert account.violations["row", 0.01] == 1
    # Who came since was counted by whoever placed it, at what it was promised.
    account = RiskAccount()
    end = fed(account, [45.0], said, promised={"row": 500.0})
    fed(account, [60.0, 60.0], said, end, promised={"row": 515.0})
    assert not account.violations
    # Nobody knows who came: the whole peak, free boards at work included.
    account = RiskAccount()
    fed(account, [60.0, 60.0], said)
    assert not account.violations


def test_a_window_ends_where_its_forecast_does() -> None:
    account, late = RiskAccount(), UNIX_SECONDS + 3 * BIN_SECONDS
    for now in (0.0, (REACH_BINS - 3) * BIN_SECONDS):
        account.take({"row": 50.0}, {"row": outlook()}, now, late)
    assert account.windows["row", 0.01] == 1


def test_who_lost_the_lead_counts_no_window_that_it_did_not_see_to_its_end() -> None:
    account = RiskAccount()
    end = fed(account, [50.0] * 30, outlook())
    account.forget()
    fed(account, [50.0] * 30, outlook(), end)
    assert not account.windows


def test_the_metrics_say_what_is_allowed() -> None:
    account, metrics = RiskAccount(risk_bands({0: 0.05})), ControllerMetrics()
    end = fed(account, [81.0, *[50.0] * (2 * REACH_BINS)], outlook())
    for _ in range(2):
        metrics.outlooks.count_risks(account.windows, account.violations)
    text = metrics.text().decode()
    assert 'domain_risk_windows_total{domain="row",risk="0.05"} 2.0' in text
    assert 'domain_risk_violations_total{domain="row",risk="0.05"} 1.0' in text
    assert 'domain_risk_violations_total{domain="row",risk="0.01"} 0.0' in text
    assert 'domain_risk_allowed_total{domain="row",risk="0.05"} 0.1' in text
    assert end > 0


def test_the_thread_that_writes_statuses_feeds_it_while_this_replica_leads() -> None:
    row = Row()
    api = EmbeddedKube(row.clock)
    status = StatusThread(api, row.clock, row.cluster.desired, "test")
    status.account = account = RiskAccount()
    first = row.pass_minutes(1)
    row.issue(0.9 * float(first.decisions.draw_watts[0]))
    for _ in range(11):
        for _ in range(60):
            outcome = row.tick("node-1")
            assert outcome is not None
            status.take(outcome)
        status.run_once()
    assert account.violations["row", 0.01] == account.windows["row", 0.01] == 1
