"""A verb in a process of its own, and on SIGALRM a nasty moment for its main thread.

Usage: ending_program.py MOMENT VERB ARGUMENT …. The moment begins when SIGALRM is handled, which is
said on standard error; "released" ends it on standard input. A second signal counts from the first
moment on, so that no test has to wait until it is no echo any more.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

from wattpack import cli, ending


class Finaliser:
    """An exception that is raised in here is printed and lost."""

    def __del__(self) -> None:
        say("moment")
        released()


def in_a_finaliser() -> None:
    made = Finaliser()
    del made


def with_locks_in_hand() -> None:
    """As if each event of the process were being set or waited for by the main thread just now.

    The signal may come while an event is being made: what has no lock yet, nobody can be holding.
    """
    everything = [thing for thing in gc.get_objects() if isinstance(thing, threading.Event)]
    locks = [vars(event)["_cond"] for event in everything if "_cond" in vars(event)]
    held = [lock for lock in locks if lock.acquire(blocking=False)]
    say("moment")
    released()
    for lock in held:
        lock.release()


def where_others_get_the_signal() -> None:
    """No untimed wait of the main thread ends by a signal from now on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ending.SIGNALS)
    say("moment")


def stuck() -> None:
    """What it waits for never comes."""
    say("moment")
    threading.Lock().acquire() and threading.Event().wait()


MOMENTS = {
    "in a finaliser": in_a_finaliser,
    "with locks in hand": with_locks_in_hand,
    "where others get the signal": where_others_get_the_signal,
    "stuck": stuck,
}


def say(word: str) -> None:
    # Descriptor 1 of a verb that solves is not its own: the solver's lines are dropped there.
    os.write(2, f"{word}\n".encode())


def released() -> None:
    while b"released" not in os.read(0, 64):
        continue


def tell_what_is_heard() -> None:
    heard = ending.EndNote.heard

    def telling(note: ending.EndNote, number: int, now_ns: int) -> ending.Word:
        word = heard(note, number, now_ns)
        say(f"heard {number}")
        return word

    ending.EndNote.heard = telling  # type: ignore[method-assign]


if __name__ == "__main__":
    moment = MOMENTS[sys.argv[1]]
    ending.SAME_WORD_NS = 0
    tell_what_is_heard()
    # Whoever runs the tests with nohup, or in the background, made them deaf to these.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: moment())
    sys.exit(cli.main(sys.argv[2:]))
