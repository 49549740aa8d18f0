"""The page of forecasting names every setting of the process with its default."""

from __future__ import annotations

import re
from pathlib import Path

from forecasting.app.forecaster_command import ForecasterSettings

PAGE = Path(__file__).parents[2] / "docs" / "forecasting.md"


def test_every_setting_of_the_forecaster_stands_on_the_page_with_its_default() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text, re.MULTILINE))
    assert told == {
        name: str(value) for name, value in ForecasterSettings().model_dump(mode="json").items()
    }
