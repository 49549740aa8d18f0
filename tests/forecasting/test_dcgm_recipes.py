"""Recipes for dcgm-exporter on a real Prometheus, against sums over the same samples in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from forecasting.prometheus import PrometheusSource
from forecasting.prometheus.dcgm_recipes import expanded
from forecasting.series_source import Floats, SeriesId
from tests.forecasting.prometheus_server import serving
from wattpack.errors import InputError

START = 1_700_000_400
MINUTES = 360
BIN = 600
POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
UTILISATION, ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
BLANK = "9223372036854775794"


@dataclass(frozen=True)
class Board:
    """One GPU of the tests: steady figures, so that sums can be worked out on paper."""

    name: str
    host: str
    watts: float
    utilisation: float
    pod_until: int = 0  # minutes that a pod of "chat" holds it
    silent: tuple[int, int] = (0, 0)
    twice: bool = False  # scraped by two servers

    def labels(self, minute: int, job: str) -> str:
        """As dcgm-exporter writes them, with pods below honorLabels: false."""
        pod = 'exported_namespace="chat",exported_pod="chat-0",' if minute < self.pod_until else ""
        return (
            f'gpu="0",UUID="GPU-{self.name}",pci_bus_id="00000000:17:00.0",device="nvidia0",'
            f'modelName="NVIDIA H100 80GB HBM3",Hostname="{self.host}",{pod}'
            f'DCGM_FI_DRIVER_VERSION="550.54.15",job="{job}"'
        )

    def told(self, minute: int) -> bool:
        return not self.silent[0] <= minute < self.silent[1]


BOARDS = [
    Board("a", "row1-n1", 300.0, 90.0, pod_until=180),
    Board("b", "row1-n1", 200.0, 40.0, twice=True),
    Board("c", "row1-n2", 500.0, 100.0, pod_until=180, silent=(120, 240)),
    Board("d", "row2-n1", 700.0, 60.0),
]


def exposition() -> str:
    """What the exporters said, minute by minute; board b's driver is loaded anew at minute 200."""
    lines = []
    for metric, kind in ((POWER, "gauge"), (ENERGY, "counter"), (UTILISATION, "gauge"),
                         (ENGINE, "gauge")):  # fmt: skip
        lines += [f"# HELP {metric} as dcgm-exporter tells it.", f"# TYPE {metric} {kind}"]
        for board in BOARDS:
            for job in ("dcgm", "dcgm-old") if board.twice else ("dcgm",):
                for minute in range(MINUTES):
                    if not board.told(minute):
                        continue
                    since = minute - (200 if board.name == "b" and minute >= 200 else 0)
                    value = {
                        POWER: f"{board.watts}",
                        ENERGY: f"{board.watts * 60_000 * (since + 1):.0f}",
                        UTILISATION: f"{board.utilisation:.0f}",
                        ENGINE: f"{board.utilisation / 100}",
                    }[metric]
                    at = START + 60 * minute
                    lines.append(f"{metric}{{{board.labels(minute, job)}}} {value} {at}")
        if metric == POWER:
            # A board that cannot tell its draw writes this.
            labels = BOARDS[0].labels(0, "dcgm").replace("GPU-a", "GPU-z")
            lines += [f"{POWER}{{{labels}}} {BLANK} {START + 60 * m}" for m in range(MINUTES)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusSource]:
    with serving(tmp_path_factory.mktemp("dcgm"), exposition()) as address:
        source = PrometheusSource(address)
        yield source
        source.close()


def fetched(source: PrometheusSource, series: str) -> Floats:
    return source.fetch([SeriesId(series)], START - START % BIN, START + 60 * MINUTES)[0]


#: Whole bins, clear of the lookback of five minutes: all told, c silent up to an hour, gone, back.
TOLD, SILENT, GONE = slice(2, 11), slice(14, 17), slice(20, 23)


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("series", "told", "silent", "gone"),
    [
        ("wattpack:dcgm_draw_watts", 1700, np.nan, 1200),
        ('wattpack:dcgm_draw_watts{Hostname=~"row1-.*"}', 1000, np.nan, 500),
        ('wattpack:dcgm_draw_watts{Hostname="row2-n1"}', 700, 700, 700),
        ('wattpack:dcgm_draw_watts{Hostname="row3-n1"}', np.nan, np.nan, np.nan),
        ('wattpack:dcgm_energy_draw_watts{Hostname="row1-n1"}', 500, 500, 500),
        ("1.5 * wattpack:dcgm_draw_watts{Hostname='row2-n1'} + 50".replace("'", '"'),
         1100, 1100, 1100),
        ('wattpack:dcgm_gpus_busy{exported_namespace="chat"}', 1.9, np.nan, 0),
        ('wattpack:dcgm_gpus_active{exported_namespace="chat"}', 1.9, np.nan, 0),
        ('wattpack:dcgm_gpus_held{exported_pod=~"chat-.*"}', 2, np.nan, 0),
        ('wattpack:dcgm_gpus_busy{Hostname="row2-n1"}', 0.6, 0.6, 0.6),
        ("wattpack:dcgm_gpus_held", 4, np.nan, 3),
    ],
)  # fmt: skip
def test_a_recipe_sums_what_boards_told(
    source: PrometheusSource, series: str, told: float, silent: float, gone: float
) -> None:
    row = fetched(source, series)
    np.testing.assert_allclose(row[TOLD], told, rtol=1e-6)
    np.testing.assert_allclose(row[SILENT], silent, rtol=1e-6)
    np.testing.assert_allclose(row[GONE], gone, rtol=1e-6)
    assert not (row < 0).any()


@pytest.mark.promtool
def test_a_counter_that_starts_anew_is_no_fall_of_draw(source: PrometheusSource) -> None:
    row = fetched(source, 'wattpack:dcgm_energy_draw_watts{Hostname="row1-n1"}')
    reset = (200 * 60 + START % BIN) // BIN
    assert row[reset - 3 : reset + 3] == pytest.approx(500, abs=60)


@pytest.mark.promtool
def test_a_server_that_holds_few_samples_is_asked_for_less_at_once(
    source: PrometheusSource, tmp_path: Path
) -> None:
    with serving(tmp_path, exposition(), "--query.max-samples=2500") as address:
        small = PrometheusSource(address)
        try:
            found = fetched(small, "wattpack:dcgm_draw_watts")
            with pytest.raises(InputError, match="too many samples"):
                fetched(small, "avg_over_time(DCGM_FI_DEV_POWER_USAGE[6h:1s])")
        finally:
            small.close()
    np.testing.assert_array_equal(found, fetched(source, "wattpack:dcgm_draw_watts"))


@pytest.mark.parametrize(
    "series",
    [
        "wattpack:dcgm_draw",
        "wattpack:dcgm_",
        "wattpack:dcgm_draw_watts{Hostname=row1}",
        'wattpack:dcgm_draw_watts{Hostname="row1",,}',
        'wattpack:dcgm_draw_watts{Hostname="a"} + wattpack:dcgm_draw_watts{"b"}',
        "wattpack:dcgm_draw_watts[5m]",
        "wattpack:dcgm_draw_watts:sum",
    ],
)
def test_what_is_no_recipe_is_refused(series: str) -> None:
    with pytest.raises(InputError, match="series"):
        expanded(series)


def test_names_inside_quotes_and_other_expressions_stay_as_they_are() -> None:
    for series in ('up{a="wattpack:dcgm_draw_watts"}', "sum(power)", "my:wattpack:dcgm_x", ""):
        assert expanded(series) == series
    both = expanded('wattpack:dcgm_gpus_busy{pod=~"a{2},\\"b"} - wattpack:dcgm_gpus_held')
    assert both.count('{pod=~"a{2},\\"b"}') == 3
