"""The page of placement names every setting of the planner with its default."""

from __future__ import annotations

import re
from pathlib import Path

from scheduler_plugin.app.scheduler_settings import PlacementSettings

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"


def test_every_setting_of_the_planner_stands_on_the_page_with_its_default() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text, re.MULTILINE))
    defaults = PlacementSettings().model_dump(mode="json", exclude={"moves", "provisioning"})
    assert {name: value.lower() for name, value in told.items()} == {
        name: str(value).lower() for name, value in defaults.items()
    }
