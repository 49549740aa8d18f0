"""``wattpack forecast --paths``: joint sample paths of what is published, for others' studies."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.app.forecast_command import main
from forecasting.app.path_files import SeriesPaths, ToldPaths, write_paths
from forecasting.domains.series_tree import SeriesTree
from forecasting.joint_paths import below_tops
from forecasting.series_source import Floats
from forecasting.sqlite import HistoryStore
from tests.forecasting.test_round_tree import world
from wattpack.errors import PermanentError
from wattpack.times import parse_rfc3339

DAY = 144
NOW = 6 * 86400
LEVELS = (0.1, 0.5, 0.9, 0.99)
TREE = ("--kind", "domain", "--parts", "row=pdu-*", "--parts", "pdu-a=rack-1,rack-2",
        "--parts", "pdu-b=rack-3")  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row, its PDUs and racks, which share shocks; and two services that do, and one without."""
    found = tmp_path_factory.mktemp("paths") / "history.db"
    random, t = np.random.default_rng(8), np.arange(6 * DAY)
    shock = np.convolve(random.normal(0, 1, len(t)), np.ones(6) / 2, mode="same")
    services = {
        name: 100 + 20 * np.sin(2 * np.pi * t / DAY) + 10 * shock + random.normal(0, 1, len(t))
        for name in ("left", "right")
    }
    with HistoryStore(found) as store:
        for name, values in {**world(3), **services}.items():
            store.append_bins(name, 0, values, values)
        store.append_bins("new", NOW - 3600, np.full(6, 50.0), np.full(6, 50.0))
    return found


@pytest.fixture
def asked(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str) -> tuple[int, str, str]:
        line = ["--history-file", str(file), "--at", str(NOW), "--hours", "2"]
        status = main([*line, "--levels", ",".join(map(str, LEVELS)), *argv])
        return status, *capsys.readouterr()

    return ask


def told(out: str) -> dict[str, tuple[dict[str, Any], Floats]]:
    """Status and paths of each series."""
    found = json.loads(out)["forecasts"]
    return {f["series"]: (f["status"], np.array(f["paths"]["values"])) for f in found}


def test_paths_follow_the_published_steps_and_keep_hours_together(asked: Any) -> None:
    """Independent paths would make the sum of two services that rise together a third too calm."""
    status, out, _ = asked("left", "right", "--paths", "400", "--json")
    assert status == 0
    found = told(out)
    for published, paths in found.values():
        assert paths.shape == (400, 12)
        steps = np.array([path["values"] for path in published["quantiles"]])
        spread = steps[-1] - steps[0]
        assert np.all(np.abs(np.quantile(paths, LEVELS, axis=0) - steps) < 0.05 * spread)
    (_, left), (_, right) = found["left"], found["right"]
    assert np.corrcoef(left[:, 5], right[:, 5])[0, 1] > 0.7


def test_parts_of_a_power_tree_add_up_on_every_path_and_stay_near_what_is_published(
    asked: Any,
) -> None:
    names = ("row", "pdu-a", "pdu-b", "rack-1", "rack-2", "rack-3")
    status, out, _ = asked(*names, *TREE, "--paths", "300", "--json")
    assert status == 0
    assert all(f["paths"]["addsUp"] for f in json.loads(out)["forecasts"])
    found = told(out)
    paths = {name: made for name, (_, made) in found.items()}
    # What a domain draws beyond its parts is a leaf, too: hosts, here some 500 W.
    for whole, parts in (("row", ("pdu-a", "pdu-b")), ("pdu-a", ("rack-1", "rack-2"))):
        own = paths[whole] - sum(paths[part] for part in parts)
        assert own.min() > 0
        assert 400 < own.mean() < 600
    for published, made in found.values():
        steps = np.array([path["values"] for path in published["quantiles"]])
        assert np.all(np.abs(np.median(made, axis=0) - steps[1]) < 0.3 * (steps[-1] - steps[0]))


def test_a_tree_without_losses_adds_up_to_a_millionth(tmp_path: Path) -> None:
    values = world(5, hosts=0.0)
    file, out = tmp_path / "draws.csv", tmp_path / "paths.npz"
    with file.open("w", encoding="utf-8", newline="") as text:
        lines = csv.writer(text)
        lines.writerow(("time", *values))
        lines.writerows((k * 600, *row) for k, row in enumerate(np.stack([*values.values()], 1)))
    line = ["--all", "--data-file", str(file), "--hours", "2", *TREE, "--ceiling", "20100"]
    assert main([*line, "--paths", "50", "--paths-file", str(out)]) == 0
    with np.load(out) as kept:
        paths = dict(zip(kept["series"].tolist(), kept["paths"], strict=True))
        assert kept["adds_up"].all()
    leaves = sum(paths[f"rack-{i}"] for i in (1, 2, 3))
    assert np.abs(leaves / paths["row"] - 1).max() < 1e-6
    assert np.abs((paths["pdu-a"] + paths["pdu-b"]) / paths["row"] - 1).max() < 1e-6
    assert 20_000 < paths["row"].max() <= 20_100


def test_what_is_above_a_top_is_taken_from_the_parts_in_proportion() -> None:
    tree = SeriesTree.of({"row": None, "a": "row", "b": "row", "a1": "a", "a2": "a"})
    values = np.array([[100.0, 50.0], [60, 30], [40, 20], [45, 20], [15, 10]])
    made = below_tops(tree, values, np.array([80.0, np.inf, np.inf, 30.0, np.inf]))
    assert made == pytest.approx(
        np.array([[80.0, 50], [45 * 80 / 85, 30], [40 * 80 / 85, 20], [30 * 80 / 85, 20],
                  [15 * 80 / 85, 10]])
    )  # fmt: skip
    assert below_tops(tree, values, np.full(5, np.inf)) is values


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_file_holds_the_paths_of_the_json_and_is_the_same_again(
    asked: Any, tmp_path: Path, ending: str
) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    files = [tmp_path / f"{name}{ending}" for name in "ab"]
    for file in files:
        status, out, _ = asked("left", "right", "--paths", "7", "--paths-file", str(file), "--json")
        assert status == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name for file in files]
    start, read = _read(files[0])
    for series, (published, paths) in told(out).items():
        assert read[series] == pytest.approx(paths, rel=1e-11)
        assert parse_rfc3339(published["windowStart"]).timestamp() == start == NOW


def _read(file: Path) -> tuple[float, dict[str, Floats]]:
    """First time and paths, as anybody would read them."""
    if file.suffix == ".npz":
        with np.load(file) as kept:
            names = kept["series"].tolist()
            return float(kept["window_start_seconds"]), dict(zip(names, kept["paths"], strict=True))
    if file.suffix == ".parquet":
        import pyarrow.parquet as parquet

        columns = parquet.read_table(str(file)).to_pydict()
        first = columns["time"][0].timestamp()
    else:
        with file.open(encoding="utf-8", newline="") as text:
            rows = list(csv.DictReader(text))
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        first = parse_rfc3339(columns["time"][0]).timestamp()
    assert list(columns)[:2] == ["path", "time"]
    assert [int(n) for n in columns["path"]] == [n for n in range(7) for _ in range(12)]
    rest = list(columns)[2:]
    return first, {name: np.array(columns[name], dtype=float).reshape(7, 12) for name in rest}


def test_the_forecast_is_the_same_with_and_without_paths(asked: Any) -> None:
    _, plain, _ = asked("left", "--json")
    _, beside, _ = asked("left", "--paths", "3", "--json")
    statuses = [json.loads(out)["forecasts"][0]["status"] for out in (plain, beside)]
    assert statuses[0] == statuses[1]
    assert "paths" not in json.loads(plain)["forecasts"][0]


def test_who_cannot_be_forecast_has_no_paths_and_costs_the_others_nothing(
    asked: Any, tmp_path: Path
) -> None:
    file = tmp_path / "paths.npz"
    status, out, _ = asked("left", "new", "--paths", "2", "--paths-file", str(file), "--json")
    assert status == 0
    assert ["paths" in one for one in json.loads(out)["forecasts"]] == [True, False]
    with np.load(file) as kept:
        assert kept["series"].tolist() == ["left"]
    status, _, err = asked("new", "--paths", "2", "--paths-file", str(file))
    assert status == 2
    assert "a series with a forecast" in err


def test_forecasters_of_their_own_have_paths_of_the_same_hours(asked: Any) -> None:
    both = [
        told(asked("left", "right", "--paths", "200", "--json", "--shards", shards)[1])
        for shards in ("1", "2")
    ]
    left, right = (both[1][name][1] for name in ("left", "right"))
    assert np.corrcoef(left[:, 5], right[:, 5])[0, 1] > 0.7


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["left", "--paths", "0", "--json"], "paths: expected 1 to 10000"),
        (["left", "--paths", "-3", "--json"], "paths: expected 1 to 10000"),
        (["left", "--paths", "10001", "--json"], "paths: expected 1 to 10000"),
        (["--all", "--paths", "10000", "--json", "--hours", "168"], "at most 20000000 values"),
        (["left", "--paths", "5"], "--json or --paths-file"),
        (["left", "--paths-file", "{}/a.csv"], "paths-file: expected --paths beside it"),
        (["left", *TREE[2:], "--json"], "--kind"),
        (["row", "rack-1", "--kind", "domain", "--parts", "row"], "parts: expected DOMAIN=PART"),
        (["row", "rack-1", "--kind", "domain", "--parts", "row=rack-2"], "did you mean 'rack-1'"),
        (["row", "rack-1", "--kind", "domain", "--parts", "rwo=rack-1"], "did you mean 'row'"),
        (["row", "rack-1", "--kind", "domain", "--parts", "row=row"], "other than the domain"),
        (["row", "pdu-a", "rack-1", "--kind", "domain", "--parts", "row=rack-1",
          "--parts", "pdu-a=rack-1"], "'rack-1' in one domain, not also in 'row'"),
        (["row", "rack-1", "--kind", "domain", "--parts", "row=rack-1", "--parts", "rack-1=row"],
         "no domain that feeds itself"),
        (["row", "rack-1", "--kind", "domain", "--parts", "row=rack-1", "--shards", "2"],
         "one forecaster for a power tree"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused_by_its_flag(
    asked: Any, tmp_path: Path, argv: list[str], words: str
) -> None:
    status, out, err = asked(*(part.replace("{}", str(tmp_path)) for part in argv))
    assert (status, out) == (2, "")
    assert words in " ".join(err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("argv", [["--paths", "many"], ["--paths-file", "paths.xlsx"]])
def test_a_number_and_an_ending_are_refused_at_once(asked: Any, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        asked("left", *argv)
    assert refused.value.code == 2


@pytest.mark.parametrize("name", ["paths.csv", "paths.npz"])
def test_a_file_that_cannot_be_written_leaves_no_draft(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    status = {"windowStart": "2026-01-05T00:00:00Z", "flags": []}
    told = ToldPaths("chat", status, 600, SeriesPaths(np.ones((2, 3)), adds_up=False))
    with pytest.raises(PermanentError, match=name):
        write_paths(tmp_path / name, [told])
    assert [file.name for file in tmp_path.iterdir()] == [name]
