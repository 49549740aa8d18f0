"""``wattpack plan parallel`` reads links as people write them, answers, refuses by the field."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from wattpack.cli import main

LINKS: dict[str, Any] = {
    "apiVersion": "wattpack.io/links/v1",
    "hosts": [{"name": "a", "count": 2, "gpus": 2, "nic": "infiniband"}],
    "inside": {"bytesPerSecond": 370e9, "latencySeconds": 3e-6},
    "between": [
        {"classes": ["infiniband", "infiniband"], "bytesPerSecond": 45e9, "latencySeconds": 5e-6}
    ],
    "pairs": [{"hosts": ["a-0", "a-1"], "bytesPerSecond": 40e9}],
}
PAGE = Path(__file__).parents[3] / "docs/training-plans.md"


class Command:
    """The verb on a links file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def run(self, links: object, *more: str, gpus: str = "H100:4") -> tuple[int, str, str]:
        file = self.folder / "links.yaml"
        file.write_text(yaml.safe_dump(links), encoding="utf-8")
        asked = ["--model", "llama-3.1-8b", "--gpus", gpus, "--links", str(file)]
        status = main(["plan", "parallel", *asked, "--global-batch", "64", *more])
        output = self._capsys.readouterr()
        return status, output.out, output.err


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def changed(path: str, value: object) -> dict[str, Any]:
    """The links with the value at a dotted path; ``None`` takes it away."""
    body = copy.deepcopy(LINKS)
    *parents, last = path.split(".")
    at: Any = body
    for part in parents:
        at = at[int(part)] if part.isdigit() else at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return body


def test_the_answer_is_one_json_document_with_units_in_its_keys(command: Command) -> None:
    status, out, _ = command.run(LINKS, "--json", "--all-gpus", "--no-offload")
    answer = json.loads(out)
    assert status == 0
    assert answer["apiVersion"] == "wattpack.io/training-plan/v1"
    best = answer["best"]
    product = best["data"] * best["tensor"] * best["pipeline"] * best["context"]
    assert product == best["gpus"] == 4
    flat = [g for s in best["gpuOfRank"] for d in s for c in d for g in c]
    assert sorted(flat) == list(range(4))
    assert best["tokensPerSecond"] == pytest.approx(64 * 4096 / best["stepSeconds"])
    watts = best["joulesPerStep"] / best["stepSeconds"] / 4
    assert best["power"]["meanWattsPerGpu"] == pytest.approx(watts, rel=0.01)
    assert max(best["memoryBytesOfStage"]) <= 80e9


def test_stages_lie_on_gpus_of_two_types(command: Command) -> None:
    hosts = [
        {"name": "a", "gpus": 1, "nic": "infiniband", "gpu": "H100"},
        {"name": "b", "gpus": 1, "nic": "infiniband", "gpu": "H200"},
    ]
    links = {name: value for name, value in LINKS.items() if name != "pairs"} | {"hosts": hosts}
    flags = ("--json", "--all-gpus", "--optimizer-bits", "8")
    status, out, _ = command.run(links, *flags, gpus="H100:1,H200:1")
    answer = json.loads(out)
    assert status == 0
    assert answer["gpuTypes"] == ["H100-SXM", "H200-SXM"]
    assert answer["best"]["gpus"] == 2
    for gpus, more, words in (
        ("H100:2,H200:1", (), "the 2 GPUs of"),
        ("H100:1,A100:1", (), "hosts.1.gpu"),
        ("H100:1,H100:1", (), "each type once"),
        ("H100:1,H200:1", ("--limits", "500"), "GPUs of one type"),
    ):
        assert words in command.run(links, *more, gpus=gpus)[2]


def test_people_get_a_table_and_what_binds(command: Command) -> None:
    status, out, _ = command.run(LINKS, "--limits", "700,500", "--training-tokens", "1e8")
    assert status == 0
    for words in ("Training plans", "layouts priced", "power of a GPU", "What binds", "plateau"):
        assert words in out


def test_a_model_that_does_not_fit_is_refused_with_the_conflict(command: Command) -> None:
    status, _, err = command.run(LINKS, "--no-offload", "--model", "llama-3.1-405b")
    assert status == 2
    assert re.search(r"86 GB of memory a GPU.*need \d+\.\d+x the memory", err)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("hosts", [], "hosts"),
        ("hosts.0.gpus", 0, "hosts.0.gpus"),
        ("hosts.0.count", 9999, "count"),
        ("hosts.0.nick", "x", "nick"),
        ("inside", None, "inside"),
        ("inside.bytesPerSecond", 370, "bytesPerSecond"),
        ("inside.bytesPerSecond", float("nan"), "bytesPerSecond"),
        ("inside.latencySeconds", -1, "latencySeconds"),
        ("between", [], "between"),
        ("pairs.0.hosts", ["a-0", "b-0"], "pairs.0.hosts"),
        ("pairs.0.hosts", ["a-0", "a-0"], "pairs.0.hosts"),
        ("apiVersion", "v2", "apiVersion"),
    ],
)
def test_a_wrong_links_file_is_refused_by_its_field(
    command: Command, path: str, value: object, field: str
) -> None:
    status, out, err = command.run(changed(path, value))
    assert (status, out) == (2, "")
    assert field in err


def test_the_same_host_twice_is_refused(command: Command) -> None:
    twice = changed("hosts", [dict(LINKS["hosts"][0]) for _ in range(2)])
    assert "each name once" in command.run(twice)[2]


@pytest.mark.parametrize(
    ("gpus", "words"), [("H100", "TYPE:N"), ("H100:0", "TYPE:N"), ("H100:8", "4 GPUs"),
                        ("K80:4", "one of")],
)  # fmt: skip
def test_gpus_that_are_not_there_are_refused(command: Command, gpus: str, words: str) -> None:
    status, _, err = command.run(LINKS, gpus=gpus)
    assert status == 2
    assert words in err
