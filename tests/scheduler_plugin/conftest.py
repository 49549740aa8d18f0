"""Two nodes of eight GPUs: where most tests of placement begin."""

from __future__ import annotations

import pytest

from tests.scheduler_plugin.placement_cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_nodes("n1", "n2")
    return made
