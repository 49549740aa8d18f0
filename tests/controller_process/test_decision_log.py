"""The audit log keeps what it is told to keep, and no more."""

from __future__ import annotations

from pathlib import Path

from controller.app.decision_log import DecisionLog
from wattpack.live_view import LiveDecision
from wattpack.sqlite_retention import Retention
from wattpack.units import NS_PER_SECOND


def decisions(second: int, count: int = 1) -> list[LiveDecision]:
    return [
        LiveDecision(
            id=f"{second}-{i}", wall_time_ns=second * NS_PER_SECOND, epoch=1, domain="row",
            kind="Capping", message="draw 394000 W, cap band 380000 W, heat 0.10",
        )
        for i in range(count)
    ]  # fmt: skip


def on_disk(file: Path) -> int:
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def test_an_hour_of_a_storm_of_decisions_stays_under_the_bound(tmp_path: Path) -> None:
    """20 rows a second for an hour: 72,000 rows, over 8 MB if nothing goes."""
    file, bound = tmp_path / "audit.db", 2 << 20
    log = DecisionLog(file, Retention(365 * 86400, bound))
    for second in range(3600):
        log.append(decisions(second, 20))
        if second % 60 == 59:
            assert on_disk(file) <= bound
    assert log.failures == 0
    assert log.size_bytes > bound // 3
    assert log.newest(1)[0].wall_time_ns == 3599 * NS_PER_SECOND
    log.close()


def test_rows_go_by_age_and_the_newest_stay(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "audit.db", Retention(3600, 8 << 20))
    for second in (1000, 2000, 10_000, 10_100):
        log.append(decisions(second))
    assert [d.id for d in log.newest(10)] == ["10100-0", "10000-0"]
    log.close()


def test_a_clock_that_goes_back_does_not_stop_the_tidying(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "audit.db", Retention(3600, 8 << 20))
    for second in (10**9, 1000, 6000):
        log.append(decisions(second))
    assert [d.id for d in log.newest(10)] == [f"{10**9}-0", "6000-0"]
    log.close()
