"""A hello that names another node's board, over real streams to a whole replica.

Each stream is authenticated for one node: what another one says changes nothing of that node's
leases, and the two are told on the Node, the domain and in the metrics.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
import pytest

from capacity.profile_library import shipped_library
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.tick_loop import NoMeters
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello, make_report
from tests.controller_process.object_builders import DOMAINS, make_domain, make_node
from wattpack.api import PowerDomain
from wattpack.clock import SystemClock
from wattpack.kube.port import EVENTS, NODES, JsonObject, TokenIdentity
from wattpack.units import NS_PER_SECOND
from wattpack.wire.certificates import new_authority, new_server
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

NODE_CLAIM = "authentication.kubernetes.io/node-name"


class Api(EmbeddedKube):
    """The embedded API; a token is good for the node that it names."""

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        return TokenIdentity("agent", (), {NODE_CLAIM: [token]})


class ScriptedAgent:
    """A stream that keeps the names of the boards that it got leases for."""

    def __init__(self, channel: grpc.Channel, node: str, boards: Sequence[str]) -> None:
        self.node, self.boards, self._sequence = node, boards, 0
        self.leased: set[str] = set()
        self._channel = channel
        self._outgoing: queue.Queue[power_pb2.AgentMessage | None] = queue.Queue()
        hello = make_hello(node, gpus=len(boards))
        for device, uuid in zip(hello.devices, boards, strict=True):
            device.uuid = uuid
        self._outgoing.put(power_pb2.AgentMessage(hello=hello))
        self._call = power_pb2_grpc.PowerControlStub(channel).Stream(
            iter(self._outgoing.get, None), metadata=(("authorization", f"Bearer {node}"),)
        )
        assert next(self._call).WhichOneof("body") == "welcome"
        threading.Thread(target=self._listen, daemon=True).start()

    def report(self, now_ns: int) -> None:
        self._sequence += 1
        report = make_report(
            self.node, gpus=len(self.boards), sequence=self._sequence, nonce=self._sequence
        )
        report.clock_ns = now_ns
        for device, uuid in zip(report.devices, self.boards, strict=True):
            device.uuid = uuid
            device.draw_watts += self._sequence % 3
        self._outgoing.put(power_pb2.AgentMessage(report=report))

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()

    def _listen(self) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):
            for message in self._call:
                self.leased |= {device.uuid for device in message.leases.devices}


class Replica:
    """A controller that leads one row of two nodes, and scripted agents."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.api = Api(self.clock)
        self.api.create(DOMAINS, make_domain())
        for node in ("honest", "aaa-thief"):
            self.api.create(NODES, make_node(node))
        authority = new_authority("test", self.clock.wall_time_ns())
        self._authority = authority.certificate_pem
        settings = ControllerSettings(
            stream_address="127.0.0.1:0", http_host="127.0.0.1", http_port=0, agent_username="agent"
        )
        around = Surroundings(
            api=self.api,
            clock=self.clock,
            identity=new_server(authority, ["localhost"], self.clock.wall_time_ns()),
            meters=NoMeters(),
            profiles=shipped_library(),
            election=settings.election(),
        )
        self.process = ControllerProcess(settings, around)
        self.process.start()
        self.agents: list[ScriptedAgent] = []

    def agent(self, node: str, boards: Sequence[str]) -> ScriptedAgent:
        credentials = grpc.ssl_channel_credentials(self._authority)
        channel = grpc.secure_channel(f"localhost:{self.process.streams.port}", credentials)
        agent = ScriptedAgent(channel, node, boards)
        self.agents.append(agent)
        return agent

    def wait(self, condition: Callable[[], bool]) -> None:
        """Agents report five times a second until it holds."""
        wake, deadline_ns = self.clock.new_wake(), self.clock.monotonic_ns() + 30 * NS_PER_SECOND
        while not condition():
            now_ns = self.clock.monotonic_ns()
            assert now_ns < deadline_ns, "the condition never held"
            for agent in self.agents:
                agent.report(now_ns)
            self.clock.wait_until(now_ns + NS_PER_SECOND // 5, wake)

    def word_on_servers(self) -> tuple[str, str, str]:
        """Status, reason and message of the domain's condition; empty before it is there."""
        domain = PowerDomain.read(self.api.get(DOMAINS, "row"))
        for found in domain.status.conditions:
            if found.type == "MembersUnderstood":
                return str(found.status), found.reason, found.message
        return "", "", ""

    def metric(self, name: str, **labels: str) -> float:
        return self.process.metrics.registry.get_sample_value(name, labels) or 0.0

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.process.stop()


@pytest.fixture
def replica() -> Iterator[Replica]:
    value = Replica()
    yield value
    value.close()


@pytest.mark.parametrize("thief_first", [False, True], ids=["later", "before the owner"])
def test_a_claim_to_another_nodes_board_is_told_and_takes_no_lease_from_it(
    replica: Replica, thief_first: bool
) -> None:
    boards = {"honest": ("gpu-a", "gpu-b"), "aaa-thief": ("gpu-a", "gpu-c")}
    order = sorted(boards, reverse=not thief_first)
    agents = {node: replica.agent(node, boards[node]) for node in order}
    replica.wait(lambda: all(a.leased == set(a.boards) for a in agents.values()))
    replica.wait(lambda: replica.word_on_servers()[0] == "False")
    _, reason, message = replica.word_on_servers()
    assert reason == "ClaimedTwice"
    assert message.startswith(f"{order[1]}: gpu-a is a GPU that node {order[0]} named first")
    replica.wait(lambda: any(_is_told(e, order[1]) for e in replica.api.list(EVENTS).items))
    assert replica.metric("wattpack_odd_servers", reason="ClaimedTwice") == 1


def _is_told(event: JsonObject, node: str) -> bool:
    return bool(event["reason"] == "NodeNotUnderstood" and event["regarding"]["name"] == node)


def test_a_domain_whose_servers_are_as_they_say_tells_that(replica: Replica) -> None:
    replica.agent("honest", ("gpu-a", "gpu-b"))
    replica.wait(lambda: replica.word_on_servers()[0] != "")
    everyone = "every server is counted as its agent describes it"
    assert replica.word_on_servers() == ("True", "AsTheySay", everyone)
    assert replica.metric("wattpack_odd_servers", reason="ClaimedTwice") == 0
