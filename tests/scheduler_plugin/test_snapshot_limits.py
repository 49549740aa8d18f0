"""What is too large, too deep or in a circle is refused by name, and early."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from pathlib import Path

import pytest

from scheduler_plugin.app import plan_command
from scheduler_plugin.documents import snapshot_limits
from scheduler_plugin.documents.plan_document import parse_plan
from scheduler_plugin.documents.snapshot import parse_snapshot
from scheduler_plugin.documents.snapshot_limits import (
    MAX_ENTRY_VALUES,
    MAX_PODS,
    SNAPSHOT_MEMBERS,
    read_bounded,
    refuse_huge,
)
from scheduler_plugin.documents.snapshot_references import MAX_LEVELS
from scheduler_plugin.gang_start import parse_forecast
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from wattpack.errors import InputError


def chain(levels: int) -> dict[str, object]:
    """Domains one below the other, the first listed deepest, and a node below them all."""
    domains = [
        {"name": f"d{i}", "parent": f"d{i + 1}" if i + 1 < levels else "", "limit_watts": 10_000}
        for i in range(levels)
    ]
    hung = snapshot(node("a"), pod("p")).model_dump(mode="json") | {"domains": domains}
    hung["nodes"][0]["domain"] = "d0"
    return hung


def test_as_many_levels_as_are_allowed_give_a_plan() -> None:
    deep = parse_snapshot(json.dumps(chain(MAX_LEVELS)))
    made = plan(deep)
    assert [p.uid for p in made.placements] == ["p"]
    assert made.refusals == ()


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 1500, 20_000])
def test_deeper_trees_are_refused_by_name(levels: int) -> None:
    with pytest.raises(InputError, match="at most 64 levels") as refusal:
        parse_snapshot(json.dumps(chain(levels)))
    assert refusal.value.field == "domains.parent"


def test_a_circle_of_1500_domains_is_refused() -> None:
    ring = chain(1500)
    domains = ring["domains"]
    assert isinstance(domains, list)
    domains[-1]["parent"] = "d0"
    with pytest.raises(InputError, match="its own ancestor"):
        parse_snapshot(json.dumps(ring))


def test_a_million_short_pods_are_refused_by_their_number() -> None:
    text = '{"pods":[' + '{"uid":"p"},' * 1_000_000 + '{"uid":"p"}]}'
    with pytest.raises(InputError, match=f"at most {MAX_PODS} pods"):
        parse_snapshot(text)


@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("spelled", ['{"\\u0075id":"p"}', "{}", "1", '[{"}":"]"}]'])
def test_however_a_million_pods_are_spelled_little_is_made_of_them(
    spelled: str, kind: type
) -> None:
    whole = '{"p\\u006fds" : [' + f"{spelled}," * 999_999 + f"{spelled}]}}"
    text = whole if kind is str else whole.encode()
    tracemalloc.start()
    before = time.process_time()
    try:
        with pytest.raises(InputError, match=f"at most {MAX_PODS} pods, got 1000000") as refusal:
            parse_snapshot(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refusal.value.field == "pods"
    assert time.process_time() - before < 2
    assert peak < 40 * 2**20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"pods":[{"uid":"p","tolerations":[' + "{}," * 200_000 + "{}]}]}", "in one entry"),
        ('{"pods":' + '[0],"pods":' * 1_500_000 + "[0]}", "entries in all"),
        ("[" + "{}," * 1_000_000 + "{}]", "entries in all"),
        ('{"pods":[' + ("[" + "0," * 99_000 + "0],") * 130 + "0]}", "12000000 values"),
        ('{"nodes":[' + "{}," * 20_000 + "{}]}", "at most 20000 nodes"),
        ('{"else":[' + "{}," * 250_000 + "{}]}", "at most 250000 else"),
    ],
)
def test_nor_is_anything_made_of_much_elsewhere(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        refuse_huge(text)


def test_exactly_as_much_as_is_allowed_is_not_refused() -> None:
    full = {name: [0] * most for name, most in SNAPSHOT_MEMBERS.items()}
    full["pods"][0] = [0] * MAX_ENTRY_VALUES  # type: ignore[call-overload]
    refuse_huge(json.dumps(full))


def test_braces_and_quotes_in_strings_count_for_nothing() -> None:
    hostile = '\\",{}[],' * 50_000
    refuse_huge(json.dumps({"pods": [{"uid": hostile}, {"uid": hostile + "\\"}]}))


def test_a_plan_of_too_many_pods_is_refused_before_it_is_made() -> None:
    with pytest.raises(InputError, match=f"at most {MAX_PODS} placements"):
        parse_plan('{"placements":[' + "{}," * MAX_PODS + "{}]}")


def test_a_forecast_of_too_many_ends_is_refused_before_it_is_made() -> None:
    ends = ",".join(f'"{i}":0' for i in range(MAX_PODS + 1))
    with pytest.raises(InputError, match=f"at most {MAX_PODS} ends"):
        parse_forecast(f'{{"ends":{{{ends}}}}}')


def test_a_selector_of_that_name_is_no_pod() -> None:
    selecting = snapshot(pod("p", node_selector={"uid": "uid"})).model_dump_json()
    refuse_huge(selecting)
    assert parse_snapshot(selecting).pods[0].node_selector == {"uid": "uid"}


@pytest.mark.parametrize("kind", [str, bytes])
def test_a_text_beyond_the_limit_is_refused(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_limits, "MAX_TEXT_BYTES", 20)
    text = '{"pods": []}         '
    with pytest.raises(InputError, match="at most 20 bytes"):
        refuse_huge(text if kind is str else text.encode())
    refuse_huge(text[:20])


class Unread(io.BytesIO):
    """A file of which nothing may be read."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file.open("rb")

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, size: int | None = -1, /) -> bytes:
        raise AssertionError("read")

    def close(self) -> None:
        self._file.close()


def test_of_a_file_that_is_too_long_nothing_is_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    with file.open("wb") as stream:
        stream.truncate(snapshot_limits.MAX_TEXT_BYTES + 1)
    with Unread(file) as unread, pytest.raises(InputError, match="at most"):
        read_bounded(unread, "huge.json")


def test_the_command_refuses_it_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "huge.json"
    with file.open("wb") as stream:
        stream.truncate(snapshot_limits.MAX_TEXT_BYTES + 1)
    assert plan_command.main(["--snapshot", str(file)]) == 2
    assert f"at most {snapshot_limits.MAX_TEXT_BYTES} bytes" in capsys.readouterr().err


def test_every_domain_above_counts_in_the_deepest_tree() -> None:
    levels = [domain(f"d{i}", 700, parent=f"d{i + 1}" if i < 63 else "") for i in range(64)]
    levels[63] = levels[63].model_copy(update={"limit_watts": 699})
    made = plan(snapshot(*levels, node("a", domain="d0"), pod("p")))
    assert made.placements == ()
    assert made.pending[0].domains == ("d63",)
