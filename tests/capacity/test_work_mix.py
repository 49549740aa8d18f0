"""Speed and draw of a mix of work under a cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_mix import entry_mix, mixes_from_document
from capacity.catalogue.entry_mix_fit import main as refit
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_model import Conditions, price_cycle
from capacity.profile_library import shipped_library
from capacity.work_mix import CapCurve, WorkMix, WorkPart, cap_curve, mix_of_classes
from tests.examples import examples
from wattpack.errors import InputError

PROFILES = shipped_library().profiles
H200 = PROFILES["H200-SXM"]
shares = st.floats(0, 0.5)


def curve(mix: WorkMix, gpu: str = "H200-SXM") -> CapCurve:
    made = cap_curve(PROFILES[gpu], mix)
    assert made is not None
    return made


@pytest.mark.parametrize("name", ["prefill", "decode", "training", "batch"])
def test_one_class_alone_is_the_profiles_own_curve(name: str) -> None:
    kernel, made = H200.kernel_classes[name], curve(mix_of_classes({name: 1.0}))
    fractions = made.cap_watts / H200.default_limit_watts
    expected = np.interp(fractions, kernel.cap_fractions, kernel.throughput)
    assert made.speed == pytest.approx(expected / expected[-1])
    assert made.p95_watts == pytest.approx(kernel.power_p95_watts)


@given(st.sampled_from(sorted(PROFILES)), shares, shares, st.floats(0.05, 1.2), st.booleans())
@examples(60)
def test_a_watt_never_hurts_and_a_draw_stays_below_the_uncapped_one(
    gpu: str, compute: float, memory: float, draw: float, short: bool
) -> None:
    parts = (
        WorkPart("prefill", compute, 0.8, draw),
        WorkPart("decode", memory, 0.5, waits_outside=True),
    )
    made = cap_curve(PROFILES[gpu], WorkMix(parts, short))
    if made is None:
        assert compute == memory == 0
        return
    assert np.all((made.speed > 0) & (made.speed <= 1))
    assert np.all(np.diff(made.speed) >= -1e-12)
    most = max(draw * PROFILES[gpu].default_limit_watts, made.draw_watts[-1])
    assert np.all(made.draw_watts <= most * 1.2)
    assert made.value_per_watt(PROFILES[gpu].knee_watts) >= 0


def test_a_mix_lies_between_its_classes() -> None:
    hot, cool = curve(mix_of_classes({"prefill": 1.0})), curve(mix_of_classes({"decode": 1.0}))
    both = curve(mix_of_classes({"prefill": 0.3, "decode": 0.7}))
    cap = H200.knee_watts
    assert hot.speed_at(cap) < both.speed_at(cap) < cool.speed_at(cap)
    assert hot.value_per_watt(cap) > both.value_per_watt(cap) > cool.value_per_watt(cap)


def test_parts_that_are_rare_alone_count_where_they_are_not_together() -> None:
    hot = curve(mix_of_classes({"prefill": 0.04, "training": 0.04, "decode": 0.9}), "A40")
    one = curve(mix_of_classes({"prefill": 0.04, "decode": 0.9}), "A40")
    classes = PROFILES["A40"].kernel_classes
    lower = min(classes["prefill"].power_p95_watts, classes["training"].power_p95_watts)
    assert hot.p95_watts == pytest.approx(lower)
    assert one.p95_watts == pytest.approx(classes["decode"].power_p95_watts)


def test_time_that_a_gpu_waits_is_not_slowed() -> None:
    busy, half = curve(mix_of_classes({"prefill": 1.0})), curve(mix_of_classes({"prefill": 0.5}))
    assert half.speed[0] > busy.speed[0]
    assert half.draw_watts[-1] < busy.draw_watts[-1]


def test_gentle_work_does_not_feel_a_cap_above_its_draw() -> None:
    gentle = curve(WorkMix((WorkPart("decode", 1.0, draw_share=0.45),)))
    assert gentle.speed_at(0.6 * H200.default_limit_watts) > 0.97
    assert curve(mix_of_classes({"decode": 1.0})).speed[0] < gentle.speed[0]


def test_kernels_behind_a_wait_are_late_only_when_they_outlast_it() -> None:
    waits = WorkPart("prefill", 1.0, 0.5, 1.0, waits_outside=True)
    assert curve(WorkMix((waits,))).speed_at(0.7 * H200.default_limit_watts) == 1.0


def test_no_work_and_unknown_classes_have_no_curve() -> None:
    assert cap_curve(H200, mix_of_classes({"idle": 1.0})) is None
    assert cap_curve(H200, mix_of_classes({"no-such": 0.5})) is None


@pytest.mark.parametrize(
    "mix", [{"decode": 0.7, "prefill": 0.7}, {"decode": float("nan")}, {"decode": -0.1}]
)
def test_shares_that_are_none_are_refused(mix: dict[str, float]) -> None:
    with pytest.raises(InputError):
        mix_of_classes(mix)


def test_entries_agree_with_their_prices_where_a_type_was_measured() -> None:
    """Other laws: the catalogue has the regulator's, profiles have published cap sweeps."""
    gpu, gaps = priced_gpu("H200-SXM"), []
    for name, work in shipped_catalogue().items():
        mix = entry_mix(name, "H200-SXM")
        assert mix is not None
        full = price_cycle(work, gpu).seconds
        for share in (0.6, 0.8):
            capped = price_cycle(work, gpu, Conditions(limit_watts=share * gpu.limit_watts))
            gaps.append(curve(mix).speed_at(share * gpu.limit_watts) - full / capped.seconds)
    assert float(np.mean(np.abs(gaps))) < 0.05


def test_an_entry_is_priced_on_a_type_without_a_datasheet_too() -> None:
    mix = entry_mix("decoder-decode", "V100-PCIE")
    assert mix is not None
    assert mix == entry_mix("decoder-decode", "H200-SXM")
    assert curve(mix, "V100-PCIE").value_per_watt(PROFILES["V100-PCIE"].knee_watts) > 0
    assert entry_mix("no-such-entry", "H200-SXM") is None


def test_the_shipped_table_of_mixes_tells_what_the_catalogue_gives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refit(["--check"]) == 0
    assert "what the catalogue gives" in capsys.readouterr().out


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema": "wattpack.io/entry-mixes/v1", "types": {}},
        {
            "schema": "wattpack.io/entry-mixes/v1",
            "types": {"H200-SXM": {"a": [False, [["decode", 1.2, 1.0, 0.5, False]]]}},
        },
    ],
)
def test_a_table_that_cannot_be_one_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        mixes_from_document(document)
