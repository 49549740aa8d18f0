"""Collectives over the GPUs of one host: this process is rank 0, each other GPU has a process.

The peers do what the pipe tells them; the library itself keeps the ranks in step.
"""

from __future__ import annotations

import contextlib
import os
import socket
from multiprocessing.connection import Connection
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import multiprocessing

from capacity.kernels import FORMAT_BYTES, Collective

LOOPBACK: Final = "127.0.0.1"
LAUNCH_SECONDS: Final = 0.005
MAX_RUNS: Final = 100
JOIN_SECONDS: Final = 10.0


class CollectiveGroup:
    """Processes on ``gpus`` GPUs that run collectives together.

    Multicast over NVLink stays off: a program that uses it can put the host's GPUs out of service.
    """

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        os.environ["NCCL_NVLS_ENABLE"] = "0"
        port = _free_port()
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._peers = []
        for rank in range(1, gpus):
            ours, theirs = context.Pipe()
            peer = context.Process(target=_peer, args=(rank, gpus, port, theirs), daemon=True)
            peer.start()
            self._pipes.append(ours)
            self._peers.append(peer)
        _join(0, gpus, port)

    def load(self, kernel: Collective) -> LoadedCollective:
        """Buffers on every GPU; a few runs to set up the channels."""
        self._tell(("load", kernel))
        return LoadedCollective(self, kernel)

    def run(self, work: Any, count: int) -> None:
        """Queue ``count`` runs on every GPU."""
        self._tell(("run", count))
        for _ in range(count):
            work()

    def close(self) -> None:
        """End the peers."""
        with contextlib.suppress(OSError):
            self._tell(("end",))
        torch.cuda.synchronize()
        dist.destroy_process_group()
        for peer in self._peers:
            peer.join(JOIN_SECONDS)
            if peer.is_alive():
                peer.terminate()

    def _tell(self, words: tuple[Any, ...]) -> None:
        for pipe in self._pipes:
            pipe.send(words)


class LoadedCollective:
    """One collective with its buffers."""

    def __init__(self, group: CollectiveGroup, kernel: Collective) -> None:
        self.implementation = f"nccl:{'.'.join(map(str, torch.cuda.nccl.version()))}"
        self._group = group
        self._work = _work(kernel, rank=0)
        self.runs_per_launch = 1
        group.run(self._work, 5)
        torch.cuda.synchronize()
        one = min(self.launch(1).seconds() for _ in range(3))
        self.runs_per_launch = min(MAX_RUNS, max(1, round(LAUNCH_SECONDS / max(one, 1e-7))))

    def launch(self, count: int) -> _Timed:
        """Queue ``count`` launches and return at once."""
        first = torch.cuda.Event(enable_timing=True)
        last = torch.cuda.Event(enable_timing=True)
        first.record()
        self._group.run(self._work, count * self.runs_per_launch)
        last.record()
        return _Timed(first, last)

    def close(self) -> None:
        """Wait for what is queued."""
        torch.cuda.synchronize()


class _Timed:
    def __init__(self, first: Any, last: Any) -> None:
        self._first, self._last = first, last

    def done(self) -> bool:
        """Whether the device has passed the last event."""
        return bool(self._last.query())

    def seconds(self) -> float:
        """Device time between the events; blocks until the last one."""
        self._last.synchronize()
        return float(self._first.elapsed_time(self._last)) / 1e3


def _work(kernel: Collective, rank: int) -> Any:
    """What one rank does for one run."""
    elements = max(kernel.gpus, kernel.message_bytes // FORMAT_BYTES["bf16"])
    elements -= elements % kernel.gpus
    mine = torch.randn(elements, dtype=torch.bfloat16, device="cuda")
    if kernel.op == "all_reduce":
        return lambda: dist.all_reduce(mine)
    if kernel.op == "all_gather":
        whole = torch.empty(elements * kernel.gpus, dtype=torch.bfloat16, device="cuda")
        return lambda: dist.all_gather_into_tensor(whole, mine)
    if kernel.op == "reduce_scatter":
        part = torch.empty(elements // kernel.gpus, dtype=torch.bfloat16, device="cuda")
        return lambda: dist.reduce_scatter_tensor(part, mine)
    if kernel.op == "all_to_all":
        other = torch.empty_like(mine)
        return lambda: dist.all_to_all_single(other, mine)
    if rank == 0:
        return lambda: dist.send(mine, 1)
    return (lambda: dist.recv(mine, 0)) if rank == 1 else (lambda: None)


def _peer(rank: int, gpus: int, port: int, pipe: Connection) -> None:
    """A process on another GPU."""
    _join(rank, gpus, port)
    work: Any = None
    while True:
        words = pipe.recv()
        if words[0] == "end":
            break
        if words[0] == "load":
            work = _work(words[1], rank)
        else:
            for _ in range(words[1]):
                work()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def _join(rank: int, gpus: int, port: int) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"tcp://{LOOPBACK}:{port}", rank=rank, world_size=gpus,
        device_id=torch.device("cuda", rank),
    )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
