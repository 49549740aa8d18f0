"""The agent stream over real gRPC and TLS on loopback."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
import numpy as np
import pytest

from controller.app.agent_gateway import AgentGateway, TickSide
from controller.app.agent_identity import NodeAuthenticator
from controller.app.answer_desk import lease_batches
from controller.app.fleet import Fleet
from controller.app.stream_server import StreamServer
from tests.controller_process.messages import make_hello, make_reading, make_report
from wattpack.clock import SystemClock
from wattpack.errors import InputError
from wattpack.kube.port import TokenIdentity, TokenRefusedError
from wattpack.wire.certificates import (
    Identity,
    ServingIdentity,
    new_authority,
    new_identity,
    new_server,
)
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

NODE_CLAIM = "authentication.kubernetes.io/node-name"


class TokenTable:
    """Reviews tokens from a table; the rest of the port is not used by the gateway."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self.nodes = nodes
        self.reviews = 0

    def review_token(self, token: str, audiences: tuple[str, ...]) -> TokenIdentity:
        self.reviews += 1
        if token not in self.nodes:
            raise TokenRefusedError("unknown token")
        node = self.nodes[token]
        # A token of the console, say, may be bound to a node just as well.
        username = "somebody" if token == "of-another" else "agent"
        return TokenIdentity(username, (), {NODE_CLAIM: [node]} if node else {})


@dataclass
class Server:
    fleet: Fleet
    gateway: AgentGateway
    thread: StreamServer
    authority: Identity
    tokens: TokenTable

    def stub(self) -> power_pb2_grpc.PowerControlStub:
        credentials = grpc.ssl_channel_credentials(self.authority.certificate_pem)
        channel = grpc.secure_channel(f"localhost:{self.thread.port}", credentials)
        return power_pb2_grpc.PowerControlStub(channel)


@pytest.fixture
def server() -> Iterator[Server]:
    clock = SystemClock()
    fleet = Fleet()
    tokens = TokenTable({"token-1": "node-1", "unbound": "", "of-another": "node-1"})
    authenticator = NodeAuthenticator(tokens, clock, "agent")  # type: ignore[arg-type]
    gateway = AgentGateway(
        fleet, authenticator, clock, name="test", report_period_ms=200, tick=TickSide(lambda: None)
    )
    authority = new_authority("test", clock.wall_time_ns())
    identity = new_server(authority, ["localhost", "127.0.0.1"], clock.wall_time_ns())
    thread = StreamServer(gateway, "127.0.0.1:0", identity, drain_seconds=0.0)
    thread.start()
    yield Server(fleet, gateway, thread, authority, tokens)
    thread.stop()


class Agent:
    """A scripted agent: what is put is sent."""

    def __init__(self, server: Server, token: str = "token-1") -> None:
        self.outgoing: queue.Queue[power_pb2.AgentMessage | None] = queue.Queue()
        self.call = server.stub().Stream(
            iter(self.outgoing.get, None),
            metadata=(("authorization", f"Bearer {token}"),),
            timeout=20,
        )

    def say(self, **body: object) -> None:
        self.outgoing.put(power_pb2.AgentMessage(**body))

    def close(self) -> None:
        self.outgoing.put(None)


def test_an_agent_is_welcomed_and_its_reports_reach_the_fleet(server: Server) -> None:
    agent = Agent(server)
    agent.say(hello=make_hello())
    assert next(agent.call).welcome.version == 1
    agent.say(report=make_report(sequence=1))
    agent.close()
    assert list(agent.call) == []
    sample = server.fleet.records()[0].sample
    assert sample is not None
    assert sample.sequence == 1


def test_streams_that_shall_end_now_end_in_one_turn_of_the_loop(server: Server) -> None:
    nodes = [f"node-{i}" for i in range(1, 5)]
    server.tokens.nodes |= {f"token of {node}": node for node in nodes}
    agents = [Agent(server, f"token of {node}") for node in nodes]
    for node, agent in zip(nodes, agents, strict=True):
        agent.say(hello=make_hello(node))
        assert next(agent.call).WhichOneof("body") == "welcome"
    turns: queue.Queue[int] = queue.Queue()

    def end_all() -> None:
        ending = server.gateway.end_present_streams(0.0)
        turns.put(sum(1 for _ in iter(lambda: next(ending.__await__(), "done"), "done")))

    loop = server.gateway._loop
    assert loop is not None
    loop.call_soon_threadsafe(end_all)
    assert turns.get(timeout=10) == 0
    assert [list(agent.call) for agent in agents] == [[]] * len(agents)


def test_a_bad_report_does_not_end_the_stream(server: Server) -> None:
    agent = Agent(server)
    agent.say(hello=make_hello())
    next(agent.call)
    agent.say(report=make_report(node="node-2"))
    agent.say(report=make_report(sequence=2))
    agent.close()
    assert list(agent.call) == []
    assert server.gateway.refused_reports == 1
    sample = server.fleet.records()[0].sample
    assert sample is not None
    assert sample.sequence == 2


def test_reports_that_are_refused_in_a_row_are_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(server)
    agent.say(hello=make_hello())
    next(agent.call)
    with caplog.at_level("INFO", "controller.app.agent_gateway"):
        for number, node in enumerate(("node-2", "node-3", "node-1", "node-1", "node-2")):
            agent.say(report=make_report(sequence=number + 1, node=node))
        agent.close()
        assert list(agent.call) == []
    words = [one.message for one in caplog.records if "report" in one.message]
    assert [word.split(": ")[1] for word in words] == [
        "report refused",
        "reports are taken again",
        "report refused",
    ]
    assert server.gateway.refused_reports == 3


@pytest.mark.parametrize(
    ("token", "hello", "code"),
    [
        ("stolen", make_hello(), grpc.StatusCode.UNAUTHENTICATED),
        ("unbound", make_hello(), grpc.StatusCode.UNAUTHENTICATED),
        ("of-another", make_hello("node-1"), grpc.StatusCode.UNAUTHENTICATED),
        ("token-1", make_hello("node-2"), grpc.StatusCode.INVALID_ARGUMENT),
        ("token-1", make_hello(versions=[99]), grpc.StatusCode.INVALID_ARGUMENT),
        ("token-1", make_hello(gpus=0), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_who_may_not_stream_is_told_why(
    server: Server, token: str, hello: power_pb2.Hello, code: grpc.StatusCode
) -> None:
    agent = Agent(server, token)
    agent.say(hello=hello)
    with pytest.raises(grpc.RpcError) as refusal:
        next(agent.call)
    assert refusal.value.code() == code
    assert server.fleet.records() == []
    agent.close()


def test_a_token_is_reviewed_once_a_minute_not_once_a_stream(server: Server) -> None:
    for _ in range(3):
        agent = Agent(server)
        agent.say(hello=make_hello())
        next(agent.call)
        agent.close()
        list(agent.call)
    assert server.tokens.reviews == 1


def test_lease_batches_reach_only_the_nodes_that_are_to_be_sent_to(server: Server) -> None:
    from tests.controller_process.controller_builders import make_commands, make_small_topology

    topology = make_small_topology(nodes=("node-1", "node-2"), gpus_per_node=2)
    commands = make_commands(topology, send=np.array([True, False]), cap_watts=450.0)
    assert list(lease_batches(topology, commands)) == ["node-1"]
    agent = Agent(server)
    agent.say(hello=make_hello())
    next(agent.call)
    assert server.gateway.send(topology, commands) == 1
    batch = next(agent.call).leases
    assert [device.cap_watts for device in batch.devices] == [450.0, 450.0]
    assert [device.uuid for device in batch.devices] == ["node-1-gpu-0", "node-1-gpu-1"]
    agent.close()


def test_a_renewed_certificate_is_shown_without_a_restart(server: Server) -> None:
    renewed = new_identity(["localhost"], SystemClock().wall_time_ns())
    server.thread.use(renewed)
    server.authority = Identity(renewed.ca_bundle, renewed.ca_key)
    agent = Agent(server)
    agent.outgoing.put(power_pb2.AgentMessage(hello=make_hello("node-1")))
    assert next(agent.call).WhichOneof("body") == "welcome"
    agent.outgoing.put(None)


def test_the_same_certificate_again_renews_nothing(server: Server) -> None:
    renewed = new_identity(["localhost"], SystemClock().wall_time_ns())
    for _ in range(3):
        server.thread.use(renewed)
    assert server.thread.renewals == 1


def test_streams_of_the_old_certificate_go_on_and_then_move_over_in_order(server: Server) -> None:
    agent = Agent(server)
    agent.say(hello=make_hello())
    next(agent.call)
    server.thread.use(new_identity(["localhost"], SystemClock().wall_time_ns()))
    # An end and no failure: the call's own status is OK.
    assert list(agent.call) == []
    assert agent.call.code() == grpc.StatusCode.OK


def test_a_certificate_that_cannot_be_shown_leaves_the_old_one(server: Server) -> None:
    server.thread.use(ServingIdentity(b"", b"", b"no certificate", b"no key"))
    assert (server.thread.renewals, server.thread.failed_renewals) == (0, 1)
    agent = Agent(server)
    agent.say(hello=make_hello())
    assert next(agent.call).WhichOneof("body") == "welcome"
    agent.close()


def test_a_port_that_somebody_listens_on_is_refused_and_not_shared(server: Server) -> None:
    identity = new_identity(["localhost"], SystemClock().wall_time_ns()).server
    with pytest.raises(InputError, match="a free address"):
        StreamServer(server.gateway, f"127.0.0.1:{server.thread.port}", identity).start()


def test_a_second_stream_of_a_node_ends_the_first_and_only_it_is_followed(server: Server) -> None:
    first = Agent(server)
    first.say(hello=make_hello())
    next(first.call)
    first.say(report=make_report(sequence=900))
    second = Agent(server)
    second.say(hello=make_hello())
    next(second.call)
    assert list(first.call) == []
    second.say(report=make_report(sequence=1))
    second.close()
    assert list(second.call) == []
    sample = server.fleet.records()[0].sample
    assert sample is not None
    assert sample.sequence == 1
    assert server.gateway.connected() == 0


def test_a_hundred_reconnects_leave_no_stream_behind(server: Server) -> None:
    for _ in range(100):
        agent = Agent(server)
        agent.say(hello=make_hello())
        next(agent.call)
        agent.close()
        assert list(agent.call) == []
    assert server.gateway.connected() == 0
    assert len(server.fleet.records()) == 1


@pytest.mark.parametrize(
    "raw",
    [b"\xff" * 40, b"\x0a\x7f", b"", b"\x12\x00", b"\x0a" + b"\x80" * 12, b"x" * (5 * 1024 * 1024)],
    ids=["garbage", "truncated", "empty", "report first", "endless length", "too large"],
)
def test_bytes_that_are_no_hello_end_that_stream_only(server: Server, raw: bytes) -> None:
    credentials = grpc.ssl_channel_credentials(server.authority.certificate_pem)
    with grpc.secure_channel(f"localhost:{server.thread.port}", credentials) as channel:
        call = channel.stream_stream("/wattpack.v1.PowerControl/Stream")(
            iter([raw]), metadata=(("authorization", "Bearer token-1"),), timeout=20
        )
        with pytest.raises(grpc.RpcError):
            list(call)
    assert server.fleet.records() == []
    agent = Agent(server)
    agent.say(hello=make_hello())
    assert next(agent.call).welcome.version == 1
    agent.close()
    assert list(agent.call) == []


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for the server's thread to have read what was sent."""
    for _ in range(500):
        if holds():
            return
        SystemClock().wait_until(SystemClock().monotonic_ns() + 10_000_000)
    raise AssertionError("it never came")


def newest(server: Server) -> int:
    """Sequence of the report that the fleet has."""
    sample = server.fleet.records()[0].sample
    return sample.sequence if sample is not None else -1


def test_an_agent_beside_another_waits_and_is_heard_and_answered_when_that_one_ends(
    server: Server,
) -> None:
    from tests.controller_process.controller_builders import make_commands, make_small_topology

    topology = make_small_topology(nodes=("node-1",), gpus_per_node=2)
    old = Agent(server)
    old.say(hello=make_hello(instance="old"))
    next(old.call)
    old.say(report=make_report(sequence=900))
    eventually(lambda: newest(server) == 900)
    new = Agent(server)
    new.say(hello=make_hello(instance="new"))
    assert next(new.call).WhichOneof("body") == "welcome"
    new.say(report=make_report(sequence=1))
    eventually(lambda: server.gateway.waiting() == 1)
    server.gateway.send(topology, make_commands(topology, send=np.array([True]), cap_watts=450.0))
    assert next(old.call).leases.devices[0].cap_watts == 450.0
    old.say(report=make_report(sequence=901))
    eventually(lambda: newest(server) == 901)
    old.close()
    assert list(old.call) == []
    eventually(lambda: server.gateway.waiting() == 0)
    new.say(report=make_report(sequence=2))
    eventually(lambda: newest(server) == 2)
    server.gateway.send(topology, make_commands(topology, send=np.array([True]), cap_watts=440.0))
    assert next(new.call).leases.devices[0].cap_watts == 440.0
    assert server.gateway.handovers == {"ended": 1}
    assert server.gateway.refused_reports == 0
    new.close()


def test_a_third_agent_of_a_node_is_refused_while_two_speak(server: Server) -> None:
    agents = [Agent(server) for _ in range(3)]
    for number, agent in enumerate(agents):
        agent.say(hello=make_hello(instance=f"agent-{number}"))
        if number < 2:
            next(agent.call)
    with pytest.raises(grpc.RpcError) as refusal:
        next(agents[2].call)
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (server.gateway.connected(), server.gateway.waiting()) == (1, 1)
    for agent in agents:
        agent.close()


def test_a_counter_is_not_differenced_between_two_agents(server: Server) -> None:
    def report(sequence: int, joules: float) -> power_pb2.NodeReport:
        devices = [make_reading(f"node-1-gpu-{i}", energy_joules=joules) for i in range(2)]
        return make_report(sequence=sequence, clock_ns=sequence * 10**9, devices=devices)

    fleet = Fleet()
    fleet.hello(make_hello(instance="old"))
    fleet.report(report(1, 1000.0), 1)
    fleet.report(report(2, 1300.0), 2)
    assert fleet.records()[0].energy_mean_watts.tolist() == [300.0, 300.0]
    fleet.hello(make_hello(instance="new"))
    fleet.report(report(3, 1700.0), 3)
    assert np.isnan(fleet.records()[0].energy_mean_watts).all()
