"""Quantities as the API server reads them, and what a pod asks for in total."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.quantities import LARGEST, parse_quantity, pod_requests, resources


@pytest.mark.parametrize(
    ("text", "scale", "value"),
    [
        ("250m", 1000, 250),
        ("1.5", 1000, 1500),
        ("0.1m", 1000, 1),
        (2, 1000, 2000),
        ("64Gi", 1, 64 * 2**30),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("1E", 1, 10**18),
        ("1Ei", 1, 2**60),
        ("5M", 1, 5_000_000),
        ("1k", 1, 1000),
        ("+.5", 1000, 500),
        ("5.", 1, 5),
        ("-0", 1, 0),
        ("1n", 1, 1),
        ("9e99", 1, LARGEST),
        ("1e9999999999", 1, LARGEST),
        ("1e-9999999999", 1, 1),
        ("0" * 6000 + "7", 1, 7),
        ("9" * 6000, 1, LARGEST),
    ],
)
def test_quantities_are_exact_rounded_up_and_capped(text: object, scale: int, value: int) -> None:
    assert parse_quantity("q", text, scale) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-1",
            "lots",
            "NaN",
            "inf",
            "1Zi",
            "1_000",
            "٣",
            " 1",
            "1 ",
            ".",
            "1e",
            "1kk",
            "1Ki3",
        ),
        *(None, True, 1.5, [], {}),
    ],
)
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(InputError):
        parse_quantity("q", text)


@examples(200)
@given(st.one_of(st.text(max_size=12), st.text("0123456789.eE+-_kKMGinum", max_size=12)))
def test_any_text_is_a_quantity_or_a_typed_error(text: str) -> None:
    try:
        assert parse_quantity("q", text) >= 0
    except InputError as error:
        assert error.field == "q"  # noqa: PT017


POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
SUFFIXES = {
    **{suffix: Fraction(10) ** power for suffix, power in POWERS.items()},
    **{f"{e}{power}": Fraction(10) ** power for e in "eE" for power in range(-20, 21)},
    **{f"{letter}i": Fraction(2) ** (10 * (i + 1)) for i, letter in enumerate("KMGTPE")},
}


@examples(200)
@given(
    st.sampled_from(["", "+"]),
    st.from_regex(r"\A([0-9]{1,12}(\.[0-9]{0,6})?|\.[0-9]{1,6})\Z"),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from([1, 1000]),
)
@example("", "1", "k", 1)
def test_every_quantity_that_the_api_server_admits_parses_exactly(
    sign: str, number: str, suffix: str, scale: int
) -> None:
    exact = Fraction(f"0{number}") * SUFFIXES[suffix]
    capped = min(exact, Fraction(LARGEST))
    assert parse_quantity("q", sign + number + suffix, scale) == -(-capped * scale // 1)


def test_an_extended_resource_is_whole() -> None:
    assert resources("r", {"rdma/hca": "2k", "cpu": "1m"}) == {"rdma/hca": 2000, "cpu": 1}
    with pytest.raises(InputError, match=r"r\.rdma/hca: expected a whole number"):
        resources("r", {"rdma/hca": "1500m"})


def pod(**spec: Any) -> JsonObject:
    return {"metadata": {"name": "p"}, "spec": {"containers": []} | spec}


def container(name: str = "c", **requests: str) -> JsonObject:
    return {"name": name, "resources": {"requests": requests}}


def test_every_resource_counts_with_limits_sidecars_init_containers_and_overhead() -> None:
    limits = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2", "rdma/hca": "1"}
    main = {"name": "m", "resources": {"limits": limits, "requests": {"cpu": "2"}}}
    body = pod(
        containers=[main, container("d", **{"ephemeral-storage": "10Gi", "hugepages-2Mi": "4Mi"})],
        initContainers=[
            {**container("s", cpu="1", **{"rdma/hca": "1"}), "restartPolicy": "Always"},
            container("i", cpu="10"),
        ],
        overhead={"cpu": "100m"},
    )
    assert pod_requests(body) == {
        "cpu": 11_100,
        "memory": 16 * 2**30,
        "nvidia.com/gpu": 2,
        "rdma/hca": 2,
        "ephemeral-storage": 10 * 2**30,
        "hugepages-2Mi": 4 * 2**20,
    }


@pytest.mark.parametrize(
    ("declared", "cpu", "memory"),
    [
        ({"requests": {"cpu": "8"}}, 8_000, 2**30),
        ({"requests": {"cpu": "1", "memory": "2Gi"}}, 1_000, 2 * 2**30),
        ({"limits": {"cpu": "8"}}, 4_000, 2**30),
        ({"limits": {"hugepages-2Mi": "2Mi"}}, 4_000, 2**30),
        ({"requests": {"nvidia.com/gpu": "3"}}, 4_000, 2**30),
    ],
)
def test_what_the_pod_as_a_whole_asks_for_replaces_its_containers_sum(
    declared: JsonObject, cpu: int, memory: int
) -> None:
    requests = pod_requests(pod(containers=[container(cpu="4", memory="1Gi")], resources=declared))
    assert (requests["cpu"], requests["memory"]) == (cpu, memory)
    assert requests["nvidia.com/gpu"] == 0
    assert requests["hugepages-2Mi"] == ("hugepages-2Mi" in str(declared)) * 2 * 2**20


def test_a_container_that_shrinks_counts_what_it_still_holds() -> None:
    body = pod(containers=[container("c", cpu="1", memory="1Gi")])
    held = {"requests": {"cpu": "4", "memory": "1Gi"}}
    body["status"] = {"containerStatuses": [{"name": "c", "resources": held}]}
    assert pod_requests(body)["cpu"] == 4_000
