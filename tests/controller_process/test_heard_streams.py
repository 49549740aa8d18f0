"""Which stream of a node is heard while one agent follows another."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from controller.app.heard_streams import HeardStreams, Place
from tests.examples import examples

SECOND = 10**9
OLD, NEW, THIRD = "old", "new", "third"


def two_agents() -> HeardStreams[str]:
    """The old agent is heard, the new one waits."""
    streams: HeardStreams[str] = HeardStreams()
    assert streams.opened("n", "s1", OLD, "boot", 0).heard == "s1"
    streams.spoke("n", "s1", 7, SECOND)
    change = streams.opened("n", "s2", NEW, "boot", SECOND)
    assert (change.heard, change.ended, change.refused) == (None, [], False)
    return streams


def test_another_process_waits_and_is_heard_when_the_first_one_ends() -> None:
    streams = two_agents()
    streams.spoke("n", "s1", 8, 2 * SECOND)
    assert streams.spoke("n", "s2", 9, 2 * SECOND + 1).heard is None
    assert (streams.heard("n"), streams.waiting(), len(streams)) == ("s1", 1, 1)
    assert streams.closed("n", "s1").heard == "s2"
    assert (streams.heard("n"), streams.waiting(), len(streams)) == ("s2", 0, 1)


def test_the_same_process_is_heard_by_its_newest_stream_at_once() -> None:
    streams = two_agents()
    change = streams.opened("n", "s3", OLD, "boot", SECOND)
    assert (change.heard, change.ended) == ("s3", ["s1"])
    assert streams.closed("n", "s1").heard is None
    assert streams.heard("n") == "s3"
    assert streams.place("n", "s2") is Place.WAITS


def test_agents_that_know_no_instance_are_one_process() -> None:
    streams: HeardStreams[str] = HeardStreams()
    streams.opened("n", "s1", "", "boot", 0)
    assert streams.opened("n", "s2", "", "boot", 1).ended == ["s1"]
    assert streams.opened("n", "s3", NEW, "boot", 2).heard is None
    assert streams.closed("n", "s2").heard == "s3"


def test_who_waits_is_heard_after_two_silent_seconds_and_the_other_waits_then() -> None:
    streams = two_agents()
    assert streams.spoke("n", "s2", 9, 3 * SECOND - 1).heard is None
    change = streams.spoke("n", "s2", 10, 3 * SECOND)
    assert (change.heard, change.silent, change.ended) == ("s2", True, [])
    assert streams.place("n", "s1") is Place.WAITS
    assert streams.spoke("n", "s1", 11, 3 * SECOND + 1).heard is None


def test_an_agent_without_an_actuator_gives_way_to_one_that_has_it() -> None:
    streams = two_agents()
    for quarter in range(1, 9):
        streams.spoke("n", "s1", 0, SECOND + quarter * SECOND // 4)
    assert streams.spoke("n", "s2", 0, 3 * SECOND).heard is None
    assert streams.spoke("n", "s2", 9, 3 * SECOND).heard == "s2"
    # And does not come back as long as it cannot be answered.
    assert streams.spoke("n", "s1", 0, 3 * SECOND + 1).heard is None


def test_a_new_boot_is_heard_at_once_and_ends_what_was_said_before() -> None:
    streams = two_agents()
    change = streams.opened("n", "s3", THIRD, "another boot", SECOND)
    assert (change.heard, sorted(change.ended)) == ("s3", ["s1", "s2"])
    assert streams.waiting() == 0


def test_a_third_process_is_refused_while_two_speak() -> None:
    streams = two_agents()
    assert streams.opened("n", "s3", THIRD, "boot", SECOND).refused
    assert streams.place("n", "s3") is Place.UNKNOWN
    # Who waits and says nothing keeps nobody out.
    streams.spoke("n", "s1", 8, 3 * SECOND)
    assert streams.opened("n", "s4", THIRD, "boot", 3 * SECOND).ended == ["s2"]


@dataclass
class Agent:
    """A process with at most one open stream, for the search below."""

    instance: str
    stream: int = 0
    open: bool = False
    hangs: bool = False


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "end", "hang", "go on"]),
        st.integers(0, 2),
        st.sampled_from([0.2, 0.9, 1.0, 2.1]),
    ),
    max_size=40,
)


@given(steps=STEPS)
@examples(100)
def test_whatever_agents_do_one_is_heard_and_a_talking_one_within_three_seconds(
    steps: list[tuple[str, int, float]],
) -> None:
    streams: HeardStreams[int] = HeardStreams()
    agents = [Agent(f"agent-{i}") for i in range(3)]
    spoke: dict[int, int] = {}
    taken_ns, talking_since_ns, now_ns, next_stream = 0, 0, 0, 1

    def end(agent: Agent) -> None:
        agent.open = False
        streams.closed("n", agent.stream)

    for what, which, seconds in steps:
        agent = agents[which]
        if what == "open":
            if agent.open:
                end(agent)
            agent.stream, next_stream = next_stream, next_stream + 1
            before = streams.heard("n")
            change = streams.opened("n", agent.stream, agent.instance, "boot", now_ns)
            agent.open, agent.hangs = not change.refused, False
            for other in agents:
                other.open = other.open and other.stream not in change.ended
            if before is not None and streams.heard("n") != before:
                assert now_ns - spoke[before] >= 2 * SECOND
            spoke[agent.stream] = now_ns
        elif what == "end" and agent.open:
            end(agent)
        else:
            agent.hangs = what == "hang"
        for _ in range(round(seconds * 10)):
            now_ns += SECOND // 10
            for talker in agents:
                if not talker.open or talker.hangs or now_ns % SECOND:
                    continue
                before = streams.heard("n")
                streams.spoke("n", talker.stream, 5, now_ns)
                if streams.heard("n") != before:
                    assert before is not None
                    assert now_ns - spoke[before] >= 2 * SECOND
                spoke[talker.stream] = now_ns
                if streams.heard("n") == talker.stream:
                    taken_ns = now_ns
            if not any(a.open and not a.hangs for a in agents):
                talking_since_ns = now_ns
            assert now_ns - max(taken_ns, talking_since_ns) <= 3 * SECOND
            assert (streams.heard("n") is not None) == any(a.open for a in agents)
