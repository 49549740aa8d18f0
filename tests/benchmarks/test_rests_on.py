"""Finished shards outlive comments and other parts, and no change of what makes them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks._rests_on import ROOT, modules_behind, rests_on_digest

CORE = '"""A core."""\n\ndef one() -> int:\n    """One."""\n    return 1  # really\n'
SHARDED = ("_fault_runs", "_frontier_cells", "inference_row", "polca_row", "polca_weeks")


def house(root: Path) -> Path:
    for name, text in {
        "core/__init__.py": "",
        "core/values.py": CORE,
        "core/data/table.csv": "1,2\n",
        "core/unused.py": "X = 1\n",
        "plant/__init__.py": "from . import boards\n",
        "plant/boards.py": "def late():\n    from core.values import one\n    return one()\n",
        "runs.py": "import plant\n",
        "judged.py": "import importlib\nJUDGE = importlib.import_module('tests.judge')\n",
        "tests/judge.py": "LIMIT = 1\n",
        "tests/__init__.py": "",
        "tests/answers/kept.json": "{}\n",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def digest(root: Path) -> str:
    rests_on_digest.cache_clear()
    return rests_on_digest("runs", root)


def test_modules_are_found_through_packages_and_inside_functions(tmp_path: Path) -> None:
    found = set(modules_behind("runs", house(tmp_path)))
    assert found == {"runs", "plant", "plant.boards", "core", "core.values"}


def test_a_judge_that_is_imported_by_name_counts_without_other_tests_data(tmp_path: Path) -> None:
    house(tmp_path)
    assert set(modules_behind("judged", tmp_path)) == {"judged", "tests", "tests.judge"}
    digests = []
    for name, text in (("tests/answers/kept.json", "[]\n"), ("tests/judge.py", "LIMIT = 2\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        rests_on_digest.cache_clear()
        digests.append(rests_on_digest("judged", tmp_path))
    (tmp_path / "tests/answers/kept.json").write_text("{}\n", encoding="utf-8")
    rests_on_digest.cache_clear()
    assert rests_on_digest("judged", tmp_path) == digests[1] != digests[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/values.py", '"""Another word."""\ndef one() -> int:\n    return (1)\n'),
        ("core/unused.py", "X = 2\n"),
        ("core/README.md", "words\n"),
        ("core/results/old.json", "{}\n"),
        ("other/data/table.csv", "3,4\n"),
    ],
)
def test_words_and_other_parts_do_not_count(tmp_path: Path, name: str, text: str) -> None:
    before = digest(house(tmp_path))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/values.py", CORE.replace("return 1", "return 2")),
        ("core/values.py", CORE.replace("one()", "one(a: int = 1)")),
        ("core/data/table.csv", "1,3\n"),
        ("core/data/more.csv", "1,2\n"),
        ("plant/__init__.py", "from . import boards\nboards.late = None\n"),
        ("runs.py", "import plant\nimport core.unused\n"),
    ],
)
def test_what_changes_a_result_counts(tmp_path: Path, name: str, text: str) -> None:
    before = digest(house(tmp_path))
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert digest(tmp_path) != before


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        rests_on_digest("nothing", tmp_path)


@pytest.mark.parametrize("name", SHARDED)
def test_no_module_of_ours_that_python_loads_is_missed(name: str) -> None:
    """What is loaded in this process by other tests is more, so only the module's own counts."""
    module = f"benchmarks.{name}"
    importlib.import_module(module)
    behind = modules_behind(module)
    for one in behind:
        importlib.import_module(one)
        for value in vars(sys.modules[one]).values():
            owner = getattr(value, "__module__", None)
            if isinstance(owner, str) and (ROOT / owner.split(".")[0]).is_dir():
                assert owner in behind, f"{one} uses {owner}"
