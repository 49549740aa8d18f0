"""The command line: ``wattpack VERB …`` and ``kubectl wattpack VERB …``.

Verbs are loaded by name when they are used, so that a node agent never loads a solver, and so that
the shared house imports none of the packages.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
from dataclasses import dataclass

from wattpack import __version__
from wattpack.clock import SystemClock
from wattpack.ending import interruptible
from wattpack.errors import InputError, Terminated, WattpackError
from wattpack.kube.user_agent import identify


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: where its ``main(argv) -> int`` lives and what it is for."""

    module: str
    summary: str


VERBS: dict[str, Verb] = {
    "demo": Verb(
        "simulation.app.demo_command", "start everything on this machine against the twin"
    ),
    "agent": Verb(
        "telemetry.app.agent_command", "read this node's GPUs; --local shows a live table"
    ),
    "actuator": Verb("actuator.app.actuator_command", "write limits under leases (privileged)"),
    "release": Verb("actuator.app.release_command", "give a node's GPUs their default limits back"),
    "controller": Verb(
        "controller.app.controller_command", "keep every power domain below its rating"
    ),
    "scheduler": Verb(
        "scheduler_plugin.app.scheduler_command", "admit, plan and release managed pods"
    ),
    "watchdog": Verb(
        "scheduler_plugin.app.watchdog_command", "release gated pods when no planner lives"
    ),
    "forecaster": Verb("forecasting.app.forecaster_command", "forecast demand and power"),
    "forecast": Verb(
        "forecasting.app.forecast_command",
        "print or draw forecasts of a history; no cluster needed",
    ),
    "backtest": Verb(
        "forecasting.app.backtest_command", "what earlier forecasts were worth, as a report"
    ),
    "history": Verb(
        "forecasting.app.history_command", "import, list and compact what forecasts rest on"
    ),
    "console": Verb("console.app.console_command", "serve the dashboard"),
    "plan": Verb(
        "scheduler_plugin.app.plan_command",
        "pods, gpus, parallel, serving or what-if: what fits, costs and draws; no cluster needed",
    ),
    "explain": Verb(
        "console.app.explain_command",
        "cap: why a GPU is capped, what would lift it; domains: what enforcing would find",
    ),
    "bench": Verb("capacity.app.bench_command", "measure what a GPU does with time and watts"),
    "profiles": Verb("capacity.app.profiles_command", "show what each GPU type does with a watt"),
    "workloads": Verb(
        "capacity.app.workloads_command", "show kinds of work and what binds them on a GPU type"
    ),
}

#: What a verb can be about; its own module takes what names none of them.
SUBJECTS: dict[str, dict[str, Verb]] = {
    "plan": {
        "pods": Verb("scheduler_plugin.app.plan_command", "place a snapshot's or a cluster's pods"),
        "gpus": Verb(
            "capacity.app.plan_gpus_command", "cheapest GPU types, caps and counts for a demand"
        ),
        "parallel": Verb(
            "capacity.app.plan_parallel_command", "how to cut a training step over GPUs and links"
        ),
        "serving": Verb(
            "capacity.app.plan_serving_command", "latency, goodput and watts of a language model"
        ),
        "what-if": Verb(
            "scheduler_plugin.app.what_if_command",
            "a snapshot's plan with other nodes or limits, and when a gang would start",
        ),
    },
    "explain": {
        "cap": Verb(
            "console.app.explain_command",
            "the decision on a GPU's cap, what bound it, and what would lift it",
        ),
        "domains": Verb(
            "controller.app.explain_domains_command",
            "do guaranteed caps fit each breaker (I1), which would, what I2 takes",
        ),
    },
}


#: Whose first subject may still be left out.
_ONCE_WITHOUT_SUBJECT = frozenset({"plan"})


def usage() -> str:
    """What ``wattpack --help`` prints."""
    width = max(len(name) for name in VERBS)
    verbs = "\n".join(f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items())
    return (
        "usage: wattpack VERB [options]\n\nMore GPU work inside a fixed electrical budget.\n\n"
        f"{verbs}\n\n`wattpack VERB --help` explains a verb, `wattpack --version` names the "
        "release. Try `wattpack demo` first.\n\n"
        "Ctrl-C, SIGTERM or a terminal that closes ends a verb in order, half a second later a\n"
        "second signal at once (exit status 128 and its number); the actuator always sets\n"
        "guaranteed caps before it ends.\n"
    )


def _subject_usage(name: str) -> str:
    """What ``wattpack plan --help`` prints."""
    subjects = SUBJECTS[name]
    lines = "\n".join(f"  {subject:10}{verb.summary}" for subject, verb in subjects.items())
    return (
        f"usage: wattpack {name} {{{','.join(subjects)}}} [options]\n\n{lines}\n\n"
        f"`wattpack {name} {next(iter(subjects))} --help` explains one.\n"
    )


def _find(name: str, rest: list[str]) -> tuple[Verb, list[str]]:
    """The verb, and what is left for it.

    Raises:
        InputError: for a subject that the verb does not know.
    """
    subjects = SUBJECTS.get(name, {})
    if rest and rest[0] in subjects:
        return subjects[rest[0]], rest[1:]
    if subjects:
        if name not in _ONCE_WITHOUT_SUBJECT or not rest or not rest[0].startswith("-"):
            raise InputError(name, f"one of {', '.join(subjects)}", rest[0] if rest else "nothing")
        first = next(iter(subjects))
        print(
            f"deprecated: write `wattpack {name} {first} …` for `wattpack {name} …`",
            file=sys.stderr,
        )
    return VERBS[name], rest


def main(argv: list[str] | None = None) -> int:
    """Run one verb; 0 fine, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated.

    Serving verbs end with 0 when they are told to; a second signal ends any verb at once with 130
    or 143. A reader of standard output that has gone, as in ``… | head``, ends it with 141.
    """
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        return 128 + signal.SIGPIPE
    return status


def _reader_has_gone() -> bool:
    """Whether standard output is the pipe that broke; what it still holds then goes nowhere."""
    output = sys.stdout.fileno()
    watched = select.poll()
    watched.register(output, 0)
    broken = any(event & select.POLLERR for _, event in watched.poll(0))
    if broken:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return broken


def _run(argv: list[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(usage(), end="")
        return 0 if arguments else 2
    if arguments[0] in {"-V", "--version", "version"}:
        print(f"wattpack {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in VERBS:
        print(f"error: unknown verb {name!r}\n\n{usage()}", file=sys.stderr, end="")
        return 2
    if name in SUBJECTS and rest and rest[0] in {"-h", "--help"}:
        print(_subject_usage(name), end="")
        return 0
    identify(name)
    try:
        # For what only computes, and for what a serving verb does before it serves.
        with interruptible(SystemClock()):
            verb, rest = _find(name, rest)
            return int(importlib.import_module(verb.module).main(rest))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except WattpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
