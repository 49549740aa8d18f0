"""The process of one kernel: told what to run, believed nothing.

What it says about time is only compared with the judge's clock, what it says about itself only used
against the kernel. A kernel that takes this process over gains nothing: results have to be in the
shared memory when the judge's clock stops.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capacity.ranking_process.child_device import Arrays, ChildDevice, NotPlain

LARGEST_FILE = 2**28
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class _Child:
    def __init__(self, device: ChildDevice) -> None:
        self._device = device
        self._slots: list[Arrays] = []
        self._kernel: Callable[..., Any] | None = None
        self._writes = False

    def use(self, message: dict[str, Any]) -> dict[str, Any]:
        self._slots = list(self._device.arrays(message["layout"]))
        return {}

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            function = getattr(_module(message["module"]), message["function"])
            count = len(inspect.signature(function).parameters)
        except BaseException as error:
            return _refusal("not_loadable", error)
        operands = int(message["operands"])
        if count not in (operands, operands + 1):
            words = f"takes {count} arguments, not {operands} or {operands + 1}"
            return {"refused": "not_loadable", "evidence": words}
        self._kernel, self._writes = function, count > operands
        return {}

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        device = self._device
        try:
            first = device.mark()
            for index in message["slots"]:
                self._call(*self._slots[index])
            last = device.mark()
            device.wait(last, everything=message["sync"] == "device")
            return {"claimed_seconds": device.seconds_between(first, last)}
        except NotPlain as error:
            return {"refused": error.reason, "evidence": str(error)}
        except BaseException as error:
            return _refusal("raised", error)

    def inspect(self, message: dict[str, Any]) -> dict[str, Any]:
        patched = self._device.patched()
        calls: list[tuple[str, float]] = []
        if message["watch"]:
            try:
                calls = self._device.watched(self._watched_call, self._slots[0])
            except Exception:
                calls = []  # what refuses watched operands is judged by its text alone
        return {"patched": patched, "calls": calls}

    def _watched_call(self, operands: Any, result: Any) -> None:
        if self._kernel is not None:
            self._kernel(*operands, *([result] if self._writes else []))

    def _call(self, operands: tuple[Any, ...], result: Any) -> None:
        if self._kernel is None:
            raise RuntimeError("no kernel was loaded")
        if self._writes:
            value = self._kernel(*operands, result)
            if value is not None and value is not result:
                self._device.store(result, value)
        else:
            self._device.store(result, self._kernel(*operands))


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _refusal(reason: str, error: BaseException) -> dict[str, Any]:
    return {"refused": reason, "evidence": f"{type(error).__name__}: {error}"[:500]}


def main() -> int:
    """Answer until the judge closes the pipe."""
    words, answers = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    system.prctl(PR_SET_CHILD_SUBREAPER, 1)  # a daemon stays a descendant, and is seen
    device = importlib.import_module(sys.argv[3])
    with os.fdopen(words, "r", encoding="utf-8") as incoming:
        first = json.loads(incoming.readline())
        child = _Child(device.open_device(first["arena"]))
        os.write(answers, b"{}\n")
        for line in incoming:
            message = json.loads(line)
            answer = getattr(child, message["do"])(message)
            os.write(answers, json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
