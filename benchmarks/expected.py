"""What each benchmark's figures are expected to be: ``ranges.yaml``, read and compared.

A range holds the mean over the runs that its comment names and how far they spread. A figure is
inside at most ``ALLOWED_SPREADS`` spreads from the mean. Absolute times depend on the machine and
on what runs beside, so only figures marked ``quick: true`` (ratios within one run, counts) are
compared in the short forms that tests run; ``quick: only`` marks what full runs are known to miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattpack.errors import InputError
from wattpack.settings import read_yaml_mapping
from wattpack.units import require_number

FILE = Path(__file__).parent / "ranges.yaml"
ALLOWED_SPREADS = 2.0
_KEYS = {"mean", "spread", "runs", "quick"}


@dataclass(frozen=True, slots=True)
class Range:
    """Where a figure was seen, and over how many runs; in which form it is compared."""

    mean: float
    spread: float
    runs: int
    quick: bool = False
    full: bool = True

    def holds(self, figure: object) -> bool:
        """Whether the figure is a number within the allowed distance of the mean; NaN never is."""
        if isinstance(figure, bool) or not isinstance(figure, int | float):
            return False
        return abs(figure - self.mean) <= ALLOWED_SPREADS * self.spread + 1e-9 * abs(self.mean)

    def __str__(self) -> str:
        return f"{self.mean:g} ± {ALLOWED_SPREADS * self.spread:g} ({self.runs} runs)"


def read_ranges(file: Path = FILE) -> dict[str, dict[str, Range]]:
    """Ranges by benchmark and figure.

    Raises:
        InputError: naming the benchmark and figure whose range makes no sense.
    """
    document = read_yaml_mapping(file)
    document.pop("machine", None)
    return {
        name: {figure: _range(f"{name}.{figure}", body) for figure, body in figures.items()}
        for name, figures in document.items()
    }


def outside(
    ranges: Mapping[str, Range], figures: Mapping[str, object], *, quick: bool
) -> dict[str, str]:
    """The figures that left their range, each with what was expected."""
    return {
        name: f"{figures.get(name)}, expected {expected}"
        for name, expected in ranges.items()
        if (expected.quick if quick else expected.full) and not expected.holds(figures.get(name))
    }


def _range(field: str, body: object) -> Range:
    if not isinstance(body, dict) or not {"mean", "spread", "runs"} <= set(body) <= _KEYS:
        raise InputError(field, "mean, spread, runs and perhaps quick", body)
    form = body.get("quick", False)
    if form not in (True, False, "only"):
        raise InputError(f"{field}.quick", "true, false or only", form)
    return Range(
        require_number(f"{field}.mean", body["mean"]),
        require_number(f"{field}.spread", body["spread"], minimum=0.0),
        int(require_number(f"{field}.runs", body["runs"], minimum=1)),
        quick=form is not False,
        full=form != "only",
    )
