"""The shipped roofs tell what work may use of a board."""

from __future__ import annotations

import math

import pytest

from capacity.language_models import find_language_model
from capacity.roofs import require_roofs
from capacity.serving.deployment import Deployment

GIB = 2**30


@pytest.mark.parametrize("gpu", ["L4", "L40S", "A10G", "A40", "T4"])
def test_error_correction_inside_the_memory_leaves_fifteen_sixteenths(gpu: str) -> None:
    """GDDR6 has no chips for check bits: a board sold as 48 GB offers 45 GiB."""
    offered = require_roofs(gpu).memory_bytes / GIB
    sold = 8 * math.ceil(offered / 8)
    assert offered == pytest.approx(sold * 15 / 16, rel=0.002)


def test_a_server_counts_on_what_the_driver_offers() -> None:
    server = Deployment(find_language_model("llama-3.1-8b"), "L40S")
    used = server.cache_bytes_per_gpu + server.weight_bytes_per_gpu
    assert used < server.batching.memory_share * 45 * GIB
