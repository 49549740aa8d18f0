"""Requests to the API beside each other: a few at once, begun in order, none after a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["beside_each_other"]

T = TypeVar("T")
R = TypeVar("R")


def beside_each_other(
    items: Sequence[T],
    ask: Callable[[T], R],
    at_once: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> list[R]:
    """The answers for the first items, all of them unless somebody says stop.

    What is under way at a stop is waited for. One at a time needs no thread, so that one thread can
    own virtual time.

    Args:
        items: What to ask for, in this order.
        ask: One request; what it raises stops all and is raised here.
        at_once: How many requests may be under way.
        goes_on: Asked before each item, never by two threads at once.
    """
    if at_once <= 1 or len(items) <= 1:
        answers = []
        for item in items:
            if not goes_on():
                break
            answers.append(ask(item))
        return answers
    numbers = iter(range(len(items)))
    turn, broken = threading.Lock(), threading.Event()
    found: dict[int, R] = {}

    def work() -> None:
        while not broken.is_set():
            with turn:
                number = next(numbers, None) if goes_on() else None
            if number is None:
                return
            try:
                found[number] = ask(items[number])
            except BaseException:
                broken.set()
                raise

    with ThreadPoolExecutor(at_once, thread_name_prefix="patches") as pool:
        workers = [pool.submit(work) for _ in range(min(at_once, len(items)))]
    for worker in workers:
        worker.result()
    return [found[number] for number in range(len(found))]
