"""Random runs that were made once and are kept: one line a run, by the code that made them.

    folder/row52-seed-1-0123456789ab.jsonl     first line: of what these runs are
                                               every other line: one run, in the order of columns

A file is of one row, one seed and one state of the sources. Runs of different sources that have
one number have one draw as far as the draws are alike, so together they count once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scipy.stats import beta

from simulation.plant_hash import plant_sha256
from simulation.scenario import Scenario
from wattpack.errors import InputError

__all__ = ["KeptRuns", "RunsKind", "chance_bound", "read_runs", "together"]

Row = dict[str, Any]
_NUMBER: Final = "number"
_DIGITS: Final = 6


def chance_bound(struck: int, runs: int) -> float:
    """95 % upper bound of the chance of an event (Clopper and Pearson, Biometrika 26, 1934).

    Without any event it is about 3 / runs.
    """
    if struck >= runs:
        return 1.0
    return float(beta.ppf(0.95, struck + 1, runs - struck))


@dataclass(frozen=True, slots=True)
class RunsKind:
    """Of what runs are.

    Attributes:
        scenario: Name of the row.
        scenario_sha256: Hash over everything that its file says other than the defaults.
        plant_sha256: Of its plant.
        sources: Digest of the code and data that made them.
        seed: Of the draws.
    """

    scenario: str
    scenario_sha256: str
    plant_sha256: str
    sources: str
    seed: int

    @classmethod
    def of(cls, scenario: Scenario, seed: int, sources: str) -> RunsKind:
        """Runs of a row that are made now."""
        # Without defaults: a setting that is new says nothing of a row that leaves it alone.
        text = json.dumps(scenario.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        told = hashlib.sha256(text.encode()).hexdigest()
        return cls(
            scenario.name,
            told[:12],
            plant_sha256(scenario.plant, scenario.row.power_sensor),
            sources,
            seed,
        )

    def header(self) -> Row:
        """First line of their file, without its columns."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def file_name(self) -> str:
        """Their file."""
        made = hashlib.sha256((self.sources + self.scenario_sha256).encode()).hexdigest()[:12]
        return f"{self.scenario}-seed-{self.seed}-{made}.jsonl"


class KeptRuns:
    """Runs of one kind, with a file that grows by a line a run; without a folder nothing is kept.

    Args:
        kind: Of what they are.
        folder: Where the file lies, None to keep nothing.

    Raises:
        InputError: for a folder that cannot be made, or a file that is of other runs.
    """

    def __init__(self, kind: RunsKind, folder: Path | None) -> None:
        self._kind = kind
        self._file = None if folder is None else folder / kind.file_name
        self._columns: list[str] = []
        self.rows: dict[int, Row] = {}
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("--resume", "a folder to write to", str(folder)) from error
        if self._file.exists():
            self._columns, rows = _read(self._file, kind)
            self.rows = {row[_NUMBER]: row for row in rows}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep some more."""
        for row in rows:
            self.rows[row[_NUMBER]] = dict(row)
            if self._file is not None:
                self._append(self._file, row)

    def _append(self, file: Path, row: Mapping[str, Any]) -> None:
        lines = []
        if not self._columns:
            self._columns = list(row)
            lines.append(json.dumps(self._kind.header() | {"columns": self._columns}))
        lines.append(_line([row[name] for name in self._columns]))
        with file.open("a", encoding="utf-8") as out:
            out.write("".join(f"{line}\n" for line in lines))


def _line(values: Sequence[Any]) -> str:
    return json.dumps(_short(values), separators=(",", ":"))


def _short(value: object) -> object:
    """The same with numbers of six digits: nobody judges a run by more."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    return value


def _read(file: Path, kind: RunsKind | None = None) -> tuple[list[str], list[Row]]:
    """Columns and rows of a file; a last line that was cut off is taken out of the file."""
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text and kind is not None:
        file.write_text(whole, encoding="utf-8")
    lines = [json.loads(line) for line in whole.splitlines()]
    if not lines:
        return [], []
    header = lines[0]
    columns = header.pop("columns")
    if kind is not None and header != kind.header():
        raise InputError(f"{file.name}: first line", f"that of {kind}", header)
    return columns, [dict(zip(columns, values, strict=True)) for values in lines[1:]]


def read_runs(folder: Path, kind: RunsKind) -> list[tuple[str, Row]]:
    """All runs of a folder on this row and plant, whatever code made them: its digest, and the row.

    Args:
        folder: May be missing.
        kind: Sources and seed do not matter.
    """
    found: list[tuple[str, Row]] = []
    for file in sorted(folder.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            header = json.loads(next(lines, "{}"))
        same = ("scenario", "scenario_sha256", "plant_sha256")
        if any(header.get(name) != getattr(kind, name) for name in same):
            continue
        _, rows = _read(file)
        found += [(header["sources"], row | {"seed": header["seed"]}) for row in rows]
    return found


def together(kept: Sequence[tuple[str, Mapping[str, Any]]], struck: str) -> dict[str, float | int]:
    """What runs of all codes say together; runs of one seed and number count once.

    Args:
        kept: As ``read_runs`` gives them.
        struck: Column of which anything above 0 is the event.
    """
    events: dict[tuple[int, int], bool] = {}
    for _, row in kept:
        key = (row["seed"], row[_NUMBER])
        events[key] = events.get(key, False) or row[struck] > 0
    hit = sum(events.values())
    return {
        "kept_runs": len(kept),
        "kept_codes": len({code for code, _ in kept}),
        "kept_draws": len(events),
        "kept_draws_with_a_trip": hit,
        "kept_trip_chance_upper_95": chance_bound(hit, len(events)) if events else 1.0,
    }
