from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.priced_gpu import PricedGpu, priced_gpu
from capacity.catalogue.workload_kernels import imbalance
from capacity.catalogue.workload_memory import checkpoint_bytes, memory_use, stop_seconds
from capacity.catalogue.workload_model import Conditions, price_cycle
from capacity.language_models import find_language_model
from tests.capacity.catalogue.entries import PRODUCT, workload
from wattpack.errors import InputError

H200 = "H200-SXM"


@pytest.fixture(scope="module")
def gpu() -> PricedGpu:
    return priced_gpu(H200)


def seconds(folder: Path, gpu: PricedGpu, m: int, **parameters: Any) -> float:
    phase = {"name": "step", "bound": "bandwidth", "kernels": [PRODUCT | {"m": m}]}
    return price_cycle(workload(folder, phases=[phase], parameters=parameters), gpu).seconds


@pytest.mark.parametrize("m", [1, 4, 16])
def test_four_bit_weights_keep_nearly_all_of_their_gain_at_small_batch(
    tmp_path: Path, gpu: PricedGpu, m: int
) -> None:
    gain = seconds(tmp_path, gpu, m) / seconds(tmp_path, gpu, m, weight_bits=4)
    assert 3.3 <= gain <= 4.3


def test_the_gain_of_four_bits_falls_once_operations_bind(tmp_path: Path, gpu: PricedGpu) -> None:
    gains = [
        seconds(tmp_path, gpu, m) / seconds(tmp_path, gpu, m, weight_bits=4)
        for m in (16, 64, 256, 2048)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 1.2


def test_time_and_memory_grow_with_every_width(tmp_path: Path, gpu: PricedGpu) -> None:
    widths = range(1, 17)
    times = [seconds(tmp_path, gpu, 8, weight_bits=bits) for bits in widths]
    kept = [
        memory_use(
            workload(tmp_path, memory={"parameters": 8e9}, parameters={"weight_bits": bits})
        ).gpu_bytes
        for bits in widths
    ]
    assert all(b > 0.97 * a for a, b in pairwise(times))
    assert times[15] > 5 * times[0]
    assert kept == sorted(kept)


def test_a_faster_library_shortens_its_own_kernels_only(tmp_path: Path, gpu: PricedGpu) -> None:
    speeds = {"a/b/1": {"gemm": 1.25}, "a/b/2": {"attention-decode": 1.25}}
    plain = seconds(tmp_path, gpu, 16)
    faster = seconds(tmp_path, gpu, 16, kernel_efficiency=speeds, library="a/b/1")
    other = seconds(tmp_path, gpu, 16, kernel_efficiency=speeds, library="a/b/2")
    assert faster == pytest.approx(plain / 1.25, rel=0.01)
    assert other == plain


def test_two_of_four_sparsity_counts_only_where_the_units_have_it(tmp_path: Path) -> None:
    for name, gains in (("A100-SXM", True), ("V100-SXM2", False)):
        gpu = priced_gpu(name)
        gain = seconds(tmp_path, gpu, 16384) / seconds(tmp_path, gpu, 16384, sparsity="2:4")
        assert (gain > 1.3) is gains, name


def test_skewed_experts_make_the_busiest_gpu_slower() -> None:
    model = find_language_model("qwen3-235b-a22b")
    loads = [imbalance(model, skew, 8) for skew in (0.0, 0.5, 1.0)]
    assert loads == sorted(loads)
    assert loads[0] == 1.0
    assert loads[2] > 1.3
    assert imbalance(find_language_model("llama-3.1-8b"), 1.0, 8) == 1.0


def test_a_step_takes_as_long_as_its_slowest_path_when_all_of_it_overlaps(
    gpu: PricedGpu,
) -> None:
    entry = shipped_catalogue()["train-offload-nvme-overlapped"]
    for rate in (1e9, 4e9, 16e9, 64e9, 256e9):
        host = HostRoofline(storage_bytes_per_second=rate)
        made = price_cycle(entry, gpu, Conditions(host=host))
        slowest = max(made.phases[0].busy_seconds, 64e9 / rate, 64e9 / 55e9)
        assert made.seconds == pytest.approx(slowest, rel=0.1)


def test_optimiser_bits_scale_memory_and_checkpoint(tmp_path: Path) -> None:
    saved = {"mode": "synchronous", "interval_seconds": 600}
    made = [
        workload(
            tmp_path, checkpoint=saved, memory={"trained_parameters": 1e9},
            parameters={"optimizer_bits": bits},
        )
        for bits in (8, 32)
    ]  # fmt: skip
    assert [memory_use(entry).training_bytes for entry in made] == [8e9, 14e9]
    assert [checkpoint_bytes(entry) for entry in made] == [6e9, 12e9]
    lost = [stop_seconds(entry) for entry in made]
    assert lost[0] is not None
    assert lost[1] is not None
    assert lost[0] < lost[1]


def test_work_without_checkpoints_loses_all_of_it() -> None:
    assert stop_seconds(shipped_catalogue()["hyperparameter-sweep"]) is None


def test_fusion_takes_element_wise_bytes_and_not_products(gpu: PricedGpu) -> None:
    plain, fused = (shipped_catalogue()[name] for name in ("train-data-parallel", "train-fused"))
    gain = price_cycle(plain, gpu).seconds / price_cycle(fused, gpu).seconds
    assert 1.0 < gain < 1.3


def test_a_lower_limit_slows_computing_and_lowers_the_draw(gpu: PricedGpu) -> None:
    prefill = shipped_catalogue()["decoder-prefill"]
    full, held = (price_cycle(prefill, gpu, Conditions(limit_watts=w)) for w in (700, 450))
    assert held.seconds > 1.1 * full.seconds
    assert held.mean_watts < 450


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_a_clock_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="clock_share"):
        Conditions(clock_share=share)


def test_an_unknown_language_model_is_named(gpu: PricedGpu) -> None:
    entry = shipped_catalogue()["decoder-decode"].model_copy(update={"model": "nobody-7b"})
    with pytest.raises(InputError, match="nobody-7b"):
        price_cycle(entry, gpu)


def test_what_users_get_of_a_cycle_changes_no_price_of_it(tmp_path: Path, gpu: PricedGpu) -> None:
    changes: dict[str, Any] = {
        "tokens_per_step": 3.0, "output_tokens": 900, "offload_to_client": 0.5,
        "step_time_spread": 0.4, "fan_out": 7,
    }  # fmt: skip
    plain = workload(tmp_path, memory={"parameters": 8e9})
    other = workload(tmp_path, memory={"parameters": 8e9}, parameters=changes)
    assert price_cycle(other, gpu) == price_cycle(plain, gpu)
    assert memory_use(other) == memory_use(plain)
