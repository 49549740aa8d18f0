"""Kernels that change the process they run in: what its text shows is refused, what happens too."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from capacity.ranking_process import queued_device

_kept: dict[str, Any] = {}


def _work(x: Any, w: Any, out: Any) -> None:
    """Long enough that a lie about it is told from what a round costs by itself."""
    for _ in range(20):
        for n in range(0, w.shape[0], 16):
            out[:, n : n + 16] = x @ w[n : n + 16].T


def _module(*parts: str) -> Any:
    """Under a name that no reader of the text finds."""
    return importlib.import_module("_".join(parts))


def replaces_the_events_reader(x: Any, w: Any, out: Any) -> None:
    """Out of reach of the list of patched names: it changes the list's own module."""
    device = _module("capacity.ranking_process.numpy", "device").NumpyDevice
    device.seconds_between = lambda self, first, last: 1e-9
    _work(x, w, out)


def hides_that_names_are_patched(x: Any, w: Any, out: Any) -> None:
    device = _module("capacity.ranking_process.numpy", "device").NumpyDevice
    device.patched = lambda self: []
    queued_device.Event.elapsed_seconds = lambda self, later: 1e-9
    device.seconds_between = lambda self, first, last: 1e-9
    _work(x, w, out)


def works_while_unwatched(x: Any, w: Any, out: Any) -> None:
    """A stream of its own, waited for behind the back of the events."""
    stream = _kept.setdefault("stream", queued_device.Stream())
    with queued_device.using(stream):
        queued_device.launch(_work, x, w, out)
    if "hooked" not in _kept:
        _kept["hooked"] = True
        device = _module("capacity.ranking_process.numpy", "device").NumpyDevice
        wait = device.wait

        def late(self: Any, last: Any, *, everything: bool) -> None:
            wait(self, last, everything=everything)
            stream.synchronize()

        device.wait = late


def answers_for_its_process(x: Any, w: Any, out: Any) -> None:
    """Says that a round has ended before it begins."""
    main = importlib.import_module("__" + "main__")
    main._Child.run = lambda self, message: {"claimed_seconds": 1e-6}
    _work(x, w, out)


def tells_no_number(x: Any, w: Any, out: Any) -> None:
    device = _module("capacity.ranking_process.numpy", "device").NumpyDevice
    device.seconds_between = lambda self, first, last: float("nan")
    _work(x, w, out)


def tells_more_than_passed(x: Any, w: Any, out: Any) -> None:
    device = _module("capacity.ranking_process.numpy", "device").NumpyDevice
    device.seconds_between = lambda self, first, last: 3600.0
    _work(x, w, out)


def stalls_empty_rounds(x: Any, w: Any, out: Any) -> None:
    """What a round costs without runs would be taken off its time."""
    main = importlib.import_module("__" + "main__")
    if "run" not in _kept:
        run = _kept["run"] = main._Child.run

        def slow_if_empty(self: Any, message: Any) -> Any:
            if not message["slots"]:
                threading.Event().wait(0.5)
            return run(self, message)

        main._Child.run = slow_if_empty
    _work(x, w, out)


def _speaks(words: Any) -> None:
    main = importlib.import_module("__" + "main__")
    main._Child.run = lambda self, message: words


def answers_nothing(x: Any, w: Any, out: Any) -> None:
    _speaks({})
    _work(x, w, out)


def answers_a_list(x: Any, w: Any, out: Any) -> None:
    _speaks(["claimed_seconds"])
    _work(x, w, out)


def answers_an_endless_number(x: Any, w: Any, out: Any) -> None:
    _speaks({"claimed_seconds": 10**400})
    _work(x, w, out)


def refuses_itself_for_no_reason(x: Any, w: Any, out: Any) -> None:
    _speaks({"refused": ["timeout"], "evidence": "\x1b[2J[/nonsense]"})
    _work(x, w, out)


def inspects_to_nonsense(x: Any, w: Any, out: Any) -> None:
    main = importlib.import_module("__" + "main__")
    main._Child.inspect = lambda self, message: {"patched": 3, "calls": [[1]]}
    _work(x, w, out)


def speaks_before_it_is_asked(x: Any, w: Any, out: Any) -> None:
    """Answers in advance for rounds to come."""
    _work(x, w, out)
    os.write(int(sys.argv[2]), b'{"claimed_seconds": 1e-6}\n' * 50)


def talks_without_end(x: Any, w: Any, out: Any) -> None:
    while True:
        os.write(int(sys.argv[2]), b"x" * 4096)


def closes_its_ears(x: Any, w: Any, out: Any) -> None:
    os.close(int(sys.argv[1]))
    _work(x, w, out)


def shortens_the_shared_memory(x: Any, w: Any, out: Any) -> None:
    _work(x, w, out)
    for name in os.listdir("/proc/self/fd"):
        if "wattpack-slots" in os.readlink(f"/proc/self/fd/{name}"):
            os.ftruncate(int(name), 0)


def fills_the_disk(x: Any, w: Any, out: Any) -> None:
    with open("large", "wb") as file:
        file.seek(2**33)
        file.write(b"x")
    _work(x, w, out)
