"""Language models weigh what was published, and their steps hold the work that a person counts."""

from __future__ import annotations

import pytest

from capacity.decoder_kernels import TokenGroup
from capacity.kernels import Attention, Collective, DecoderStep, Gemm, Phase
from capacity.language_models import (
    LanguageModel,
    find_language_model,
    language_models_from_yaml,
    shipped_language_models,
)
from wattpack.errors import InputError

PUBLISHED_BILLIONS = {
    # model cards and papers: parameters in all, active for one token
    "llama-3.1-8b": (8.03, None),
    "llama-3.1-70b": (70.6, None),
    "llama-3.1-405b": (405.9, None),
    "llama-2-70b": (69.0, None),
    "bloom-176b": (176.2, None),
    "qwen3-32b": (32.8, None),
    "qwen3-235b-a22b": (235.0, 22.0),
    "deepseek-v3": (671.0, 37.0),
    "gpt-oss-120b": (116.8, 5.1),
    "minimax-m2.5": (229.0, 10.0),
    "kimi-k2.5": (1026.0, 32.0),
}


@pytest.mark.parametrize("model", shipped_language_models(), ids=lambda model: model.name)
def test_parameters_are_the_published_ones(model: LanguageModel) -> None:
    total, active = PUBLISHED_BILLIONS[model.name]
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.005)
    if active is not None:
        assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.05)


def test_a_cache_is_keys_and_values_of_every_layer() -> None:
    llama = find_language_model("meta-llama/Llama-3.1-70B")
    assert llama.kv_bytes_per_token("fp8") == 2 * 80 * 8 * 128
    assert llama.kv_bytes_per_token("bf16", 8) == 2 * 2 * 80 * 128
    # more GPUs than heads of keys: every GPU keeps a copy of one
    assert llama.kv_bytes_per_token("bf16", 16) == 2 * 2 * 80 * 128
    assert llama.kv_bytes(1000) == 1000 * llama.kv_bytes_per_token()


def test_latent_caches_are_not_divided() -> None:
    deepseek = find_language_model("DeepSeek-R1")
    assert deepseek.kv_bytes_per_token("bf16", 8) == 2 * 61 * (512 + 64)


def test_windows_bound_the_cache_of_their_layers() -> None:
    oss = find_language_model("gpt-oss-120b")
    token = 2 * 8 * 64 * 2
    assert oss.kv_bytes(10_000) == token * (18 * 10_000 + 18 * 128)
    decode = oss.step_mix("decode", 4, 1, 10_000)
    contexts = {k.kv_tokens for k, _ in decode if isinstance(k, Attention)}
    assert contexts == {10_000, 128}
    prefill = oss.step_mix("prefill", 1, 4096, 4096)
    assert {k.window for k, _ in prefill if isinstance(k, Attention)} == {0, 128}


def test_a_dense_share_is_the_benchmarks_own_decoder_step() -> None:
    llama = find_language_model("llama-3.1-70b")
    share = DecoderStep("decode", 16, 1, 2048, 80, 8192, 8, 1, 128, 3584, 16032)
    mix = llama.step_mix("decode", 16, 1, 2048, tensor_parallel=8)
    assert sum(n * k.flops for k, n in mix) == share.flops
    alone = [(k, n) for k, n in mix if not isinstance(k, Collective)]
    assert sum(n * k.bytes_moved for k, n in alone) == share.bytes_moved
    sums = [(k, n) for k, n in mix if isinstance(k, Collective)]
    assert sums == [(Collective("all_reduce", 2 * 16 * 8192, 8), 160)]


def test_a_mixed_step_projects_all_tokens_at_once_and_attends_apart() -> None:
    llama = find_language_model("llama-3.1-8b")
    groups = (TokenGroup("decode", 30, 1, 900), TokenGroup("prefill", 1, 482, 1000))
    mix = llama.batch_mix(groups)
    rows = {k.m for k, _ in mix if isinstance(k, Gemm)}
    assert rows == {512, 31}, "512 new tokens, of which 31 sequences want a next token"
    assert [k.batch for k, _ in mix if isinstance(k, Attention)] == [30, 1]


def test_one_token_visits_its_experts_and_many_tokens_visit_all() -> None:
    qwen = find_language_model("qwen3-235b-a22b")
    one = _expert_products(qwen, 1)
    assert one == {(1, 8 * 2 * 1536), (1, 8 * 4096)}
    many = _expert_products(qwen, 4096)
    assert many == {(256, 128 * 2 * 1536), (256, 128 * 4096)}
    flops = sum(n * k.flops for k, n in qwen.step_mix("decode", 1, 1, 1))
    assert flops / 2 == pytest.approx(qwen.active_parameters, rel=0.01)


def test_latent_decode_reads_its_cache_as_often_as_a_key_and_a_value() -> None:
    deepseek = find_language_model("deepseek-v3")
    (attention,) = (
        k for k, _ in deepseek.step_mix("decode", 1, 1, 8192) if isinstance(k, Attention)
    )
    cache = 2 * 8192 * (512 + 64)
    assert attention.bytes_moved == pytest.approx(cache, rel=0.05)
    assert attention.flops == pytest.approx(4 * 128 * 576 * 8192)


@pytest.mark.parametrize(
    ("phase", "batch", "queries", "keys", "parallel", "field"),
    [
        ("decode", 0, 1, 10, 1, "m"),
        ("prefill", 1, 20, 10, 1, "query_tokens"),
        ("decode", 1, 1, 10, 3, "tensor_parallel"),
        ("decode", 1, 1, 10, 0, "tensor_parallel"),
    ],
)
def test_impossible_steps_are_refused_by_field(
    phase: Phase, batch: int, queries: int, keys: int, parallel: int, field: str
) -> None:
    model = find_language_model("llama-3.1-8b")
    with pytest.raises(InputError) as refused:
        model.step_mix(phase, batch, queries, keys, tensor_parallel=parallel)
    assert refused.value.field == field


GOOD = """
models:
  - {name: a, layers: 1, hidden: 8, heads: 2, kv_heads: 1, head_dim: 4, intermediate: 16,
     vocabulary: 10, weight_bits: 16, source: s}
"""


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("layers: 1", "layers: 0"), "models[0].layers"),
        (("layers: 1", "layers: 1.5"), "models[0].layers"),
        (("layers: 1, ", ""), "models[0].layers"),
        (("hidden: 8", "hidden: .nan"), "models[0].hidden"),
        (("kv_heads: 1", "kv_heads: 3"), "models[0].kv_heads"),
        (("source: s", "source: ''"), "models[0].source"),
        (("source: s", "source: s, colour: red"), "models[0].colour"),
        (("source: s", "source: s, gated: 1"), "models[0].gated"),
        (("source: s", "source: s, aliases: [A]"), "models"),
        (("source: s", "source: s, experts: {count: 4}"), "models[0].experts.intermediate"),
        (("models:", "model:"), "models"),
        (("models:", "models: ["), "document"),
    ],
)
def test_bad_entries_are_refused_by_field(change: tuple[str, str], field: str) -> None:
    assert len(language_models_from_yaml(GOOD, "f")) == 1
    with pytest.raises(InputError) as refused:
        language_models_from_yaml(GOOD.replace(*change), "f")
    assert refused.value.field == field


def test_an_unknown_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(InputError, match="bloom-176b"):
        find_language_model("gpt-9")


def _expert_products(model: LanguageModel, tokens: int) -> set[tuple[int, int]]:
    products = [k for k, _ in model.step_mix("decode", tokens, 1, 1) if isinstance(k, Gemm)]
    wide = [k for k in products if k.n >= 8 * 2 * 1536]
    return {(k.m, k.n) for k in wide if k.n != model.vocabulary}
