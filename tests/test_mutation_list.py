"""Every guard of the list is where the list says, and so are the tests that must turn red."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutations.yaml"


def entries() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return listed


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: str(entry["guard"]))
def test_a_guard_that_is_to_be_taken_away_is_there_once(entry: dict[str, Any]) -> None:
    text = (ROOT / entry["file"]).read_text(encoding="utf-8")
    assert text.count(entry["old"]) == 1, f"{entry['file']} has changed: mend tests/mutations.yaml"
    assert entry["old"] != entry["new"]
    assert bool(entry.get("tests")) != bool(entry.get("run"))
    paths = [word for word in shlex.split(entry.get("tests", "")) if word.startswith("tests/")]
    for path in paths:
        file, _, name = path.partition("::")
        assert (ROOT / file).exists(), file
        wanted = name.partition("[")[0]
        assert not wanted or f"def {wanted}(" in (ROOT / file).read_text(encoding="utf-8"), path
