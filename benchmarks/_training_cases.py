"""Seeded clusters and jobs for ``plan_parallel``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks._plan_oracle import SmallCase
from benchmarks._step_simulator import Device
from capacity.language_models import Experts, LanguageModel, find_language_model
from capacity.model.kernel_samples import Floats
from capacity.roofs import require_roofs
from capacity.training.layer_costs import RooflineCosts
from capacity.training.link_matrix import Link, LinkMatrix
from capacity.training.plan_values import SearchChoices, TrainingCluster, TrainingProblem
from capacity.training.step_work import HostResources, TrainingGpu
from capacity.training.training_job import TrainingJob

NVLINK = Link(370e9, 3e-6)
INFINIBAND = Link(45e9, 5e-6)
ETHERNET = Link(3e9, 30e-6)
ROOFS = require_roofs("H100-SXM")
HOST = HostResources()
DEVICE = Device(
    ROOFS.bytes_per_second,
    HOST.link_bytes_per_second,
    HOST.memory_bytes_per_second,
    HOST.nvme_bytes_per_second,
)


def decoder(layers: int, hidden: int) -> LanguageModel:
    """A decoder of this size with the proportions of a small Llama."""
    return LanguageModel(
        name=f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=hidden // 128,
        kv_heads=max(1, hidden // 512),
        head_dim=128,
        intermediate=hidden * 7 // 2,
        vocabulary=32000,
        weight_bits=16,
        source="made up",
    )


def with_experts(model: LanguageModel, count: int) -> LanguageModel:
    """The decoder with narrower networks, two of which each token visits, and one for all."""
    width = model.intermediate // 4
    return replace(model, experts=Experts(count, 2, width, shared=1), intermediate=width)


def board(memory_bytes: float = ROOFS.memory_bytes) -> TrainingGpu:
    """An H100 by its datasheet and three constants."""
    return TrainingGpu(
        model="H100-SXM",
        memory_bytes=memory_bytes,
        bytes_per_second=ROOFS.bytes_per_second,
        limit_watts=700.0,
        idle_watts=70.0,
        wait_watts=130.0,
        exchange_watts=250.0,
        update_watts=400.0,
        costs=RooflineCosts(ROOFS, 0.75, 300.0, 0.8, 650.0),
        host=HOST,
    )


def fabric(
    hosts: int, per_host: int, nic: Link = INFINIBAND, classes: Sequence[str] | None = None
) -> LinkMatrix:
    """Hosts on one network, or islands of several joined by Ethernet."""
    kinds = list(classes) if classes is not None else ["infiniband"] * hosts
    between = {(a, b): nic if a == b else ETHERNET for a in kinds for b in kinds}
    return LinkMatrix.from_levels([per_host] * hosts, NVLINK, between, kinds)


def perturbed(links: LinkMatrix, rng: np.random.Generator, share: float = 0.3) -> LinkMatrix:
    """Every pair of hosts faster or slower by up to ``share``, both ways alike."""
    hosts = int(links.host.max()) + 1
    factor = rng.uniform(1 - share, 1 + share, (hosts, hosts))
    factor = np.triu(factor, 1) + np.triu(factor, 1).T
    np.fill_diagonal(factor, 1.0)
    spread: Floats = factor[np.ix_(links.host, links.host)]
    return replace(links, bytes_per_second=links.bytes_per_second * spread)


def problem(
    job: TrainingJob,
    links: LinkMatrix,
    choices: SearchChoices,
    gpu: TrainingGpu | None = None,
    speed: Floats | None = None,
) -> TrainingProblem:
    """The shortest step on these links."""
    cluster = TrainingCluster(links, (gpu or board(),), speed)
    return TrainingProblem(job, cluster, choices=choices)


SHAPES = ((2, 2), (4, 1)) * 2 + ((3, 2),) + ((4, 1), (2, 2)) * 2 + ((2, 2),)
"""Hosts and GPUs a host of the small cases, in turn."""


def small_case(seed: int, number: int) -> SmallCase:
    """Few GPUs on uneven links, a model of 6 to 8 layers, often little memory, often slow hosts."""
    rng = np.random.default_rng([seed, 11, number])
    hosts, per_host = SHAPES[number % len(SHAPES)]
    classes = ["a", "b", "b", "a"][:hosts] if rng.random() < 0.2 else None
    nic = Link(float(rng.choice([3e9, 12e9, 45e9])), 5e-6)
    links = perturbed(fabric(hosts, per_host, nic, classes), rng, 0.5)
    speed = rng.choice([1.0, 1.0, 0.8, 0.65], hosts)[links.host]
    hidden = int(rng.choice([2048, 4096]))
    model = decoder(int(rng.integers(6, 9)), hidden)
    batch, sequence = int(rng.choice([12, 24])), int(rng.choice([1024, 4096]))
    job = TrainingJob(model, batch if links.gpus < 6 else 12, sequence)
    needed = 18 * model.parameters / links.gpus
    memory = float(rng.uniform(1.2, 5.0) * needed + 6e9)
    return SmallCase(
        job=job,
        links=links,
        costs=board().costs,
        device=DEVICE,
        memory_bytes=memory,
        speed=speed.tolist(),
        micro_batches=(1, 2),
        recompute=("none", "full"),
        zero_stages=(0, 1),
    )


def choices_of(case: SmallCase) -> SearchChoices:
    """The planner may choose from what the exhaustive search tries."""
    return SearchChoices(
        recompute=case.recompute,
        zero_stages=case.zero_stages,
        offload=("none",),
        chunks=(1,),
        largest_micro_batch=max(case.micro_batches),
        fewer_gpus=False,
    )


def random_job(rng: np.random.Generator) -> TrainingJob:
    """From a billion to 70 billion parameters, all options of a job in play."""
    if rng.random() < 0.4:
        names = ["llama-3.1-8b", "llama-2-70b", "qwen3-32b", "bloom-176b"]
        model = find_language_model(str(rng.choice(names)))
    else:
        model = decoder(int(rng.integers(12, 49)), int(rng.choice([2048, 3072, 4096, 6144])))
        if rng.random() < 0.3:
            model = with_experts(model, int(rng.choice([8, 16, 64])))
    return TrainingJob(
        model,
        int(rng.choice([32, 64, 96, 256])),
        int(rng.choice([1024, 2048, 4096, 8192, 32768])),
        gradient_bytes=int(rng.choice([2, 4])),
        optimizer_bits=int(rng.choice([8, 16, 32])),
        activation_factor=float(rng.choice([0.5, 1.0])),
        fused=bool(rng.random() < 0.3),
    )


def random_cluster(rng: np.random.Generator, most_hosts: int = 6) -> LinkMatrix:
    """Hosts of up to three NIC classes in any order and number."""
    hosts = int(rng.integers(2, most_hosts + 1))
    kinds = ["infiniband", "roce", "ethernet"][: int(rng.integers(1, 4))]
    classes = [str(kind) for kind in rng.choice(kinds, hosts)]
    links = fabric(hosts, int(rng.choice([1, 2, 4])), INFINIBAND, classes)
    return perturbed(links, rng)
