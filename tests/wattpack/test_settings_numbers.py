from __future__ import annotations

from pathlib import Path

import pytest

from wattpack.errors import InputError
from wattpack.settings import Settings, validate


class Inner(Settings):
    watts: float = 1.0


class Outer(Settings):
    count: int = 1
    share: float | None = None
    shares: tuple[float, ...] = ()
    by_name: dict[str, float] | None = None
    on: bool = False
    on_or_count: bool | int = 0
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"count": True}, "count"),
        ({"share": False}, "share"),
        ({"shares": [0.5, True]}, "shares"),
        ({"by_name": {"a": True}}, "by_name"),
        ({"inner": {"watts": True}}, "inner.watts"),
    ],
)
def test_true_is_no_number_at_any_depth(values: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match="a number, not true or false") as refused:
        validate(Outer, values)
    assert refused.value.field == field


def test_true_stays_true_where_it_belongs() -> None:
    made = validate(Outer, {"on": True, "on_or_count": True, "count": "2", "share": 1})
    assert (made.on, made.on_or_count, made.count, made.share) == (True, True, 2, 1.0)


def test_an_environment_that_says_true_for_a_number_is_refused() -> None:
    with pytest.raises(InputError, match="count"):
        Outer.load(environment={"WATTPACK_COUNT": "true"})


def test_a_refusal_names_what_gave_the_value(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("count: one\nshare: much\n", encoding="utf-8")

    def refusal(environment: dict[str, str], flags: dict[str, object]) -> tuple[str, str]:
        with pytest.raises(InputError) as refused:
            Outer.load(file=file, environment=environment, flags=flags)
        return refused.value.source, refused.value.field

    assert refusal({}, {}) == (str(file), "count")
    assert refusal({"WATTPACK_COUNT": "two"}, {"on": None}) == ("WATTPACK_COUNT", "count")
    assert refusal({"WATTPACK_COUNT": "2"}, {"on_or_count": ()}) == (str(file), "share")
    assert refusal({"WATTPACK_COUNT": "2"}, {"share": 1, "on_or_count": ()}) == (
        "--on-or-count",
        "on_or_count.bool",
    )
