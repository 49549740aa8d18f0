"""Cases of a sweep on a Dask cluster (``--scheduler tcp://…``); the only module that knows Dask.

A worker that dies has its case run again on another. A worker of other code is refused: its row
would be kept under this code's name. Workers run one case at a time: give them one thread each.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from wattpack.errors import InputError, PermanentError, TransientError, WattpackError

if TYPE_CHECKING:
    from distributed import Client, Future

Made = TypeVar("Made")
ANSWER_SECONDS: Final = 10.0
WORKER_SECONDS: Final = 30.0
FIELD: Final = "--scheduler"
SCHEMES: Final = ("tcp", "tls")


@dataclass(frozen=True, slots=True)
class _NotMade:
    """What a worker says instead of a row."""

    why: str
    other_code: bool = False


@dataclass(frozen=True, slots=True)
class DaskSweep:
    """On the workers of a scheduler.

    Attributes:
        address: For example ``tcp://10.0.0.1:8786``.
        code: Digest of the code that a row depends on; a function of a module.
        answer_seconds: How long it may take to answer.
        worker_seconds: How long until its first worker is there.
    """

    address: str
    code: Callable[[], str]
    answer_seconds: float = ANSWER_SECONDS
    worker_seconds: float = WORKER_SECONDS

    def rows(self, work: Callable[[Any], Made], jobs: Sequence[Any]) -> Iterator[tuple[int, Made]]:
        """As they end.

        Raises:
            InputError: if nobody answers there, no worker comes, or one runs other code.
            PermanentError: for a case that kills every worker it is given to, or that none can run.
            TransientError: if the scheduler goes away.
        """
        if not jobs:
            return
        with self._client() as client:
            from distributed import as_completed

            code = self.code()
            futures = {
                client.submit(_made, code, self.code, work, job, pure=False): number
                for number, job in enumerate(jobs)
            }
            for future in as_completed(list(futures), loop=client.loop):
                yield futures[future], _row_of(future, self.address, code)
                future.release()

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """A connection whose cases end with it."""
        try:
            from distributed import Client
        except ImportError as error:
            expected = "dask.distributed to be installed (pip install 'wattpack[sweep]')"
            raise InputError(FIELD, expected, self.address) from error
        self._knock()
        with ExitStack() as closing:
            try:
                client = closing.enter_context(
                    Client(self.address, timeout=self.answer_seconds, set_as_default=False)
                )
            except (OSError, TimeoutError, ValueError) as error:
                within = f"a Dask scheduler that answers within {self.answer_seconds:g} s"
                raise InputError(FIELD, within, self.address) from error
            try:
                client.wait_for_workers(1, timeout=self.worker_seconds)
            except TimeoutError as error:
                within = f"a scheduler with a worker within {self.worker_seconds:g} s"
                raise InputError(FIELD, within, self.address) from error
            yield client

    def _knock(self) -> None:
        """Somebody listens: a Client that finds nobody leaves a thread behind that can block."""
        within = f"a Dask scheduler that answers within {self.answer_seconds:g} s"
        try:
            parts = urlsplit(self.address)
            host, port = parts.hostname, parts.port
            if parts.scheme not in SCHEMES or host is None or port is None:
                raise InputError(FIELD, f"{SCHEMES[0]}://HOST:PORT", self.address)
            socket.create_connection((host, port), self.answer_seconds).close()
        except (OSError, ValueError) as error:
            raise InputError(FIELD, within, self.address) from error


def _made(
    code: str, code_here: Callable[[], str], work: Callable[[Any], Made], job: object
) -> Made | _NotMade:
    """On a worker: a row, or why there is none."""
    own = code_here()
    if own != code:
        return _NotMade(own, other_code=True)
    try:
        return work(job)
    except WattpackError as error:
        return _NotMade(str(error))


def _row_of(future: Future, address: str, code: str) -> Any:  # noqa: ANN401 - a row of any sweep
    from distributed import KilledWorker

    if future.status == "error":
        error = future.exception()
        what = "killed every worker that it was given to"
        if not isinstance(error, KilledWorker):
            what = f"ended with {type(error).__name__}"
        raise PermanentError(f"a case {what}: {error}") from error
    if future.status != "finished":
        raise TransientError(f"the scheduler at {address} went away; go on with --resume")
    made = future.result()
    if isinstance(made, _NotMade) and made.other_code:
        raise InputError(FIELD, f"workers of this code ({code})", made.why)
    if isinstance(made, _NotMade):
        raise PermanentError(made.why)
    return made
