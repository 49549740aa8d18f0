"""The judge's end of a kernel's process: words in, answers out, bounded in time and memory.

The process is stopped while operands are made and started with the word to run, so that no thread
of it can begin early. It is ended by its own id, and so is whatever it started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import path as search_path
from typing import Any, Final, cast, get_args

import capacity
from capacity.ranking.kernel_verdict import KernelRefused, Reason
from capacity.ranking_process.process_limits import Limits
from wattpack.clock import Clock
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

LONGEST_ANSWER: Final = 2**20
LOOK_SECONDS: Final = 0.05
KEPT_VARIABLES: Final = (
    "PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "HOME", "LANG", "VIRTUAL_ENV",
    "NVIDIA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
)  # fmt: skip
THREAD_VARIABLES: Final = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS",
)  # fmt: skip
ONE_THREAD: Final = dict.fromkeys(THREAD_VARIABLES, "1")
OWN_FOLDER: Final = Path(capacity.__file__ or ".").resolve().parent.parent
_REASONS: Final = frozenset(get_args(Reason))
THREAD_END_LOOKS: Final = 25
THREAD_END_LOOK_NS: Final = NS_PER_SECOND // 100
"""Beside a busy machine a thread that ended is gone after some milliseconds."""


class StartedChild:
    """A process that imports the device's library and waits to be told of a kernel.

    It knows nothing yet, so it may be started early: PyTorch takes seconds to import.
    """

    def __init__(self, device: str, fds: Sequence[int] = ()) -> None:
        self.folder = ScratchFolder("wattpack-kernel-")
        self.errors = self.folder.path / "errors"
        words_out, self.words = os.pipe()
        self.answers, answers_in = os.pipe()
        paths = module_folders(Path.cwd(), OWN_FOLDER)
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "capacity.ranking_process.kernel_child",
                 str(words_out), str(answers_in), device],
                cwd=self.folder.path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors, pass_fds=(words_out, answers_in, *fds), start_new_session=True,
                env={**kept, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip
        os.close(words_out)
        os.close(answers_in)
        os.set_blocking(self.words, False)

    def close(self) -> None:
        """End it and whatever it started."""
        for pid in (*_descendants(self.process.pid), self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        for descriptor in (self.words, self.answers):
            os.close(descriptor)
        self.folder.close()


class KernelProcess:
    """A child that runs one kernel.

    Args:
        child: Started with the arena's device; it is closed with this.
        arena: What the device needs to see the shared memory.
    """

    def __init__(
        self, child: StartedChild, arena: Mapping[str, Any], clock: Clock, limits: Limits
    ) -> None:
        self._clock, self._limits, self._child = clock, limits, child
        self._process, self._errors = child.process, child.errors
        self._words, self._answers = child.words, child.answers
        self._started_ns = clock.monotonic_ns()
        self._buffer = b""
        try:
            deadline_ns = clock.monotonic_ns() + seconds_to_ns(limits.load_seconds)
            self._say({"arena": arena}, deadline_ns)
            self._answer(deadline_ns)
        except BaseException:
            child.close()
            raise
        self._threads = self._thread_names()

    def ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Wake it, say it, wait for the answer, stop it again.

        Raises:
            KernelRefused: as the child says, or since it died, or was too slow or too large.
        """
        self._signal(signal.SIGCONT)
        deadline_ns = self._clock.monotonic_ns() + seconds_to_ns(seconds)
        self._say(message, deadline_ns)
        answer = self._answer(deadline_ns)
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return answer

    def processor_seconds(self) -> float:
        """Time that its threads spent on processors; exact while it is stopped."""
        total_ns = 0
        for task in Path(f"/proc/{self._process.pid}/task").glob("*"):
            try:
                total_ns += int(Path(task, "schedstat").read_text().split()[0])
            except (OSError, IndexError, ValueError):
                continue  # it ended meanwhile, or this kernel keeps no such account
        return ns_to_seconds(total_ns)

    def run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """``ask`` with the time of a round."""
        return self.ask(message, self._limits.round_seconds)

    def load(self, message: Mapping[str, Any]) -> None:
        """``ask`` with the time of an import, which may compile."""
        self.ask(message, self._limits.load_seconds)

    def require_alone(self, excused: tuple[str, ...] = ()) -> None:
        """Nothing happens if no thread and no process came with the kernel.

        Args:
            excused: How names of threads begin that a driver starts when it first needs them.

        Raises:
            KernelRefused: naming what came.
        """
        children = _descendants(self._process.pid)
        if children:
            raise KernelRefused("left_processes", f"{len(children)} processes run on")
        own = self._own_threads(excused)
        for _ in range(THREAD_END_LOOKS if own else 0):
            # One that was joined is seen until the system has taken it away, and it stands still
            # while the process is stopped.
            self._signal(signal.SIGCONT)
            self._clock.wait_until(self._clock.monotonic_ns() + THREAD_END_LOOK_NS)
            self._signal(signal.SIGSTOP)
            own = self._own_threads(excused)
            if not own:
                return
        if own:
            raise KernelRefused("left_threads", f"{len(own)} threads run on ({own[0]})")

    def _own_threads(self, excused: tuple[str, ...]) -> list[str]:
        """Names of threads that came with the kernel."""
        new = self._thread_names()
        for name in self._threads:
            if name in new:
                new.remove(name)
        return [name for name in new if not excused or not name.startswith(excused)]

    def close(self) -> float:
        """End it; minutes that it held the device."""
        self._child.close()
        return ns_to_seconds(self._clock.monotonic_ns() - self._started_ns) / 60

    def _say(self, message: Mapping[str, Any], deadline_ns: int) -> None:
        if self._buffer or select.select([self._answers], [], [], 0)[0]:
            raise KernelRefused("raised", "its process ended, or spoke before it was asked")
        left = json.dumps(message).encode() + b"\n"
        while left:
            _, ready, _ = select.select([], [self._words], [], self._seconds_until(deadline_ns))
            if not ready:
                continue
            try:
                left = left[os.write(self._words, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                self._refuse_dead()

    def _seconds_until(self, deadline_ns: int) -> float:
        """At most as long as one goes without a look at the memory."""
        left = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_SECOND
        if left <= 0:
            raise KernelRefused("timeout", "no answer in time")
        self._require_small()
        return min(left, LOOK_SECONDS)

    def _answer(self, deadline_ns: int) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            left = self._seconds_until(deadline_ns)
            ready, _, _ = select.select([self._answers], [], [], left)
            if not ready:
                continue
            part = os.read(self._answers, 65536)
            if not part:
                self._refuse_dead()
            self._buffer += part
            if len(self._buffer) > LONGEST_ANSWER:
                raise KernelRefused("raised", "its process talks without end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _understood(line)

    def _require_small(self) -> None:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        if resident > self._limits.memory_bytes:
            raise KernelRefused("memory", f"{resident / 2**30:.1f} GiB of host memory")

    def _refuse_dead(self) -> None:
        self._process.wait()
        tail = printable(self._errors.read_bytes()[-300:].decode("utf-8", "replace").strip())
        raise KernelRefused("died", f"exit status {self._process.returncode} {tail}".strip())

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is not None:
            self._refuse_dead()
        os.kill(self._process.pid, number)

    def _thread_names(self) -> list[str]:
        names = []
        for task in Path(f"/proc/{self._process.pid}/task").glob("*"):
            try:
                names.append(Path(task, "comm").read_text().strip())
            except OSError:
                continue  # it ended meanwhile
        return names


def _understood(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise KernelRefused("raised", "its process talks nonsense") from error
    if not isinstance(answer, dict):
        raise KernelRefused("raised", "its process talks nonsense")
    if "refused" in answer:
        reason = str(answer["refused"])
        evidence = printable(str(answer.get("evidence"))[:500])
        raise KernelRefused(cast(Reason, reason) if reason in _REASONS else "raised", evidence)
    return answer


def module_folders(working: Path, own: Path) -> list[str]:
    """Where the kernel's process finds modules.

    wattpack's first and the working folder, from which a kernel may come, last: a module of a
    known name beside the kernel would otherwise run before anything was measured.
    """
    others = [entry for entry in search_path if entry and Path(entry) not in (working, own)]
    return [str(own), *others, *([] if working == own else [str(working)])]


def printable(text: str) -> str:
    """What a terminal shows as it stands: whoever wrote it may have meant more."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _descendants(pid: int) -> list[int]:
    """Children, their children and so on."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(child) for child in Path(task, "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found
