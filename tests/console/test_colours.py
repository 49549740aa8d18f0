"""The page can be read: WCAG contrast of at least 3 to 1 for shapes and 4.5 to 1 for text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STYLE = Path(__file__).parents[2] / "console" / "web" / "src" / "style.css"


def themes() -> dict[str, dict[str, str]]:
    """Colours by name; dark ones override light ones."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)
    found = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in blocks]
    return {"light": found[0], "dark": found[0] | found[1]}


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "name",
    [*("ramp-low", "ramp-high", "draw", "band", "rating", "fan"), *(f"type-{c}" for c in "abcde")],
)
def test_cells_stripes_and_lines_stand_out_from_the_panel(theme: str, name: str) -> None:
    # Stripes have the panel's colour, so the same figure says that a cap is seen on a cell.
    colours = themes()[theme]
    assert contrast(colours[name], colours["panel"]) >= 3.0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ramp_is_told_by_lightness_alone(theme: str) -> None:
    colours = themes()[theme]
    assert contrast(colours["ramp-low"], colours["ramp-high"]) >= 3.0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["safe", "capping", "brake", "stale"])
def test_the_state_can_be_read(theme: str, name: str) -> None:
    colours = themes()[theme]
    assert contrast(colours[name], colours["on-state"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "muted"])
@pytest.mark.parametrize("ground", ["ground", "panel"])
def test_text_can_be_read(theme: str, name: str, ground: str) -> None:
    colours = themes()[theme]
    assert contrast(colours[name], colours[ground]) >= 4.5
