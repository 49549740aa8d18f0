"""Each process has its own name at the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.kube import EmbeddedKube
from tests.wattpack.kube_over_http import KubeOverHttp, kubeconfig
from wattpack import __version__
from wattpack.cli import main
from wattpack.clock import ManualClock
from wattpack.kube import client, light
from wattpack.kube.port import NODES, NotFoundError
from wattpack.kube.user_agent import identify, user_agent


@pytest.fixture(autouse=True)
def nameless_again() -> Iterator[None]:
    yield
    identify("cli")


@pytest.mark.parametrize("adapter", ["client", "light"])
def test_both_clients_say_which_process_asks(tmp_path: Path, adapter: str) -> None:
    identify("controller")
    clock = ManualClock()
    with KubeOverHttp(EmbeddedKube(clock)) as server:
        config = tmp_path / "config"
        cluster = {"server": f"http://127.0.0.1:{server.port}"}
        config.write_text(json.dumps(kubeconfig(cluster)))
        kube = (
            client.from_kubeconfig(config)
            if adapter == "client"
            else light.LightKube(light.from_kubeconfig(config), clock)
        )
        with pytest.raises(NotFoundError):
            kube.get(NODES, "nobody")
        ((*_, headers),) = server.seen
    assert headers["User-Agent"].startswith(f"wattpack-controller/{__version__} ")


def test_the_command_line_names_the_process_after_its_verb() -> None:
    with pytest.raises(SystemExit):
        main(["watchdog", "--help"])
    assert user_agent().startswith("wattpack-watchdog/")
