"""What new users meet: the documented example, the list of reasons, refusals that help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler_plugin.app import plan_command, waiting_pods, what_if_command
from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.kube_objects.pod_claims import CLAIM_NOT_COUNTED
from scheduler_plugin.promises.gang_places import GANG_IS_FULL, MINIMUM_FIRST

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "placement-waiting.md").read_text("utf-8")
EXAMPLE = DOCS / "examples/snapshot.json"
HOLD = DOCS / "examples/snapshot-hold.json"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_documented_example_says_what_the_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert plan_command.main(["--snapshot", str(EXAMPLE)]) == 0
    assert plan_command.main(["--snapshot", str(HOLD)]) == 0
    assert what_if_command.main([str(EXAMPLE), "--start-of", "team/batch"]) == 0
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    shown = [line.strip() for line in section("Try it without a cluster").splitlines()
             if line.startswith("    ") and not line.startswith("    wattpack ")]  # fmt: skip
    assert len(shown) >= 5
    assert set(shown) <= printed


def test_every_reason_for_waiting_is_explained() -> None:
    table = section("Reasons")
    beside = (GANG_IS_FULL, MINIMUM_FIRST, CLAIM_NOT_COUNTED)
    of_pods = (waiting_pods.UNREADABLE, waiting_pods.FOREIGN_GATE, waiting_pods.REFUSED)
    for reason in (*PendingReason, *beside, *of_pods):
        assert f"`{reason}`" in table, reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["a JSON document, got 'an empty text'"]),
        ("nodes:\n- name: a\n", ["YAML is not read here"]),
        ('{"nodes": [{"name": "a", "milli_cpu": 1}]}', ["nodes.0.memory_bytes", "(bytes)", "'a'"]),
        (
            '{"nodes": [{"name": "a", "milli_cpu": 1, "memory_bytes": "80Gi"}]}',
            ["nodes.0.memory_bytes: expected a valid integer (bytes), got '80Gi'"],
        ),
        (
            '{"nodes": [{"name": "a", "milli_cpu": 1, "memory_bytes": -1}]}',
            ["expected a number greater than or equal to 0 (bytes), got -1"],
        ),
        (
            '{"nodes": [{"name": "a", "mili_cpu": 1, "memory_bytes": 1}]}',
            ["nodes.0.mili_cpu: expected one of", "did you mean 'milli_cpu'?"],
        ),
        ('{"kind": "List", "items": []}', ["kind: expected one of", "slow_downs"]),
        (
            '{"pods": [{"uid": "u", "tolerations": [{"kee": "a"}]}]}',
            ["pods.0.tolerations.0.kee", "did you mean 'key'?"],
        ),
        ('{"pods": [{"uid": "u", "gang": "g"}]}', ["'g' is none", "an object with pods"]),
    ],
)
def test_usual_mistakes_are_refused_in_words_that_help(
    text: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    assert plan_command.main(["--snapshot", str(file)]) == 2
    said = capsys.readouterr().err
    for each in words:
        assert each in said


def test_a_refusal_does_not_print_the_whole_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(EXAMPLE.read_text("utf-8"))
    document["nodes"][0]["domain"] = "elsewhere"
    file = tmp_path / "s.json"
    file.write_text(json.dumps(document))
    assert plan_command.main(["--snapshot", str(file)]) == 2
    said = capsys.readouterr().err
    assert "'elsewhere' is none" in said
    assert "h-1" not in said


def test_who_is_evicted_for_others_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(EXAMPLE), "--drain", "h-1", "--moves"]
    assert what_if_command.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    evicted = "evicted: its place goes to work that counts more"
    assert f"  team/chat-1: h-2 -> waits ({evicted})" in lines


@pytest.mark.parametrize(
    ("flag", "given", "meant"),
    [
        ("--drain", "h1", "h-1"),
        ("--add", "2:H200", "H200-SXM"),
        ("--add", "2:H200-SXM:rack2", "rack-2"),
        ("--limit", "rack1=3", "rack-1"),
        ("--start-of", "team/train", "team/gang/train"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_one_next_to_it(
    flag: str, given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what_if_command.main([str(EXAMPLE), flag, given]) == 2
    assert f"(did you mean '{meant}'?)" in capsys.readouterr().err
