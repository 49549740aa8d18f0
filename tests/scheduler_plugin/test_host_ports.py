"""Ports of the host that pods take for themselves: never two of one port on a node."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects.host_ports import MOST_ADDRESSES, MOST_PORTS, HostPorts
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import PODS, JsonObject

NODES = ("a", "b", "c")
Port = tuple[int, str, str]


def asking(name: str, *ports: Port, on: str = "") -> JsonObject:
    body = pod_object(name)
    body["metadata"]["uid"] = name
    body["spec"]["containers"][0]["ports"] = [
        {"containerPort": 1, "hostPort": number}
        | ({"protocol": protocol} if protocol else {})
        | ({"hostIP": address} if address else {})
        for number, protocol, address in ports
    ]
    if on:
        body["spec"]["nodeName"] = on
    return body


def clash(one: list[Port], other: list[Port]) -> bool:
    """As kube-scheduler says: same number and protocol, and the same address or all of them."""
    for number, protocol, address in one:
        for their_number, their_protocol, their_address in other:
            if number != their_number or (protocol or "TCP") != (their_protocol or "TCP"):
                continue
            every = {"", "0.0.0.0"} & {address, their_address}
            if every or address == their_address:
                return True
    return False


def question_of(bodies: list[JsonObject]) -> Snapshot:
    ports = HostPorts(bodies)
    pods = []
    for body in bodies:
        on = body["spec"].get("nodeName", "")
        make: Any = bound if on else pod
        where = (on,) if on else ()
        pods.append(make(body["metadata"]["uid"], *where, resources=ports.of(body)))
    return snapshot(*(node(name, resources=ports.offered()) for name in NODES), *pods)


PORTS = st.lists(
    st.tuples(
        st.sampled_from([80, 81]),
        st.sampled_from(["", "TCP", "UDP"]),
        st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
    ),
    max_size=3,
)


@examples(150)
@given(
    there=st.lists(st.tuples(PORTS, st.sampled_from(NODES)), max_size=4),
    wants=PORTS,
)
def test_a_pod_goes_exactly_where_kube_scheduler_would_let_it(
    there: list[tuple[list[Port], str]], wants: list[Port]
) -> None:
    bodies = [asking(f"p{i}", *ports, on=on) for i, (ports, on) in enumerate(there)]
    question = question_of([*bodies, asking("new", *wants)])
    (new,) = (p for p in question.pods if p.uid == "new")
    for name in NODES:
        free = not any(on == name and clash(wants, ports) for ports, on in there)
        cordoned = [n.model_copy(update={"schedulable": n.name == name}) for n in question.nodes]
        made = plan(question.model_copy(update={"nodes": tuple(cordoned)}), deadline_seconds=0.02)
        assert [p.node for p in made.placements if p.uid == new.uid] == [name] * free


@examples(60)
@given(wants=st.lists(PORTS, min_size=2, max_size=7))
def test_no_two_pods_of_a_plan_take_one_port(wants: list[list[Port]]) -> None:
    question = question_of([asking(f"p{i}", *ports) for i, ports in enumerate(wants)])
    made = plan(question, deadline_seconds=0.05)
    assert complaints(question, made) == ()
    asked = {f"p{i}": ports for i, ports in enumerate(wants)}
    for one in made.placements:
        for other in made.placements:
            apart = one.uid == other.uid or one.node != other.node
            assert apart or not clash(asked[one.uid], asked[other.uid])


def test_however_many_ports_are_asked_for_none_is_given_twice() -> None:
    many = [asking(f"p{n}", (n, "TCP", "")) for n in range(1, MOST_PORTS + 20)]
    twice = asking("twice", (MOST_PORTS + 10, "TCP", ""))
    ports = HostPorts([*many, twice])
    assert len(ports.offered()) == MOST_PORTS + 1
    assert ports.of(twice) == ports.of(many[MOST_PORTS + 9])
    addresses = [asking(f"p{n}", (80, "TCP", f"10.0.0.{n}")) for n in range(MOST_ADDRESSES + 1)]
    assert len({name for body in addresses for name in HostPorts(addresses).of(body)}) == 1


def test_ports_that_no_waiting_pod_asks_for_are_no_columns() -> None:
    assert HostPorts([asking("runs", (80, "TCP", ""), on="a"), asking("waits")]).offered() == {}


def test_pods_with_one_port_are_promised_a_node_each(cluster: Cluster) -> None:
    for name in "pqr":
        cluster.add(asking(name, (8080, "", "")))
    result = cluster.loop.step()
    assert sorted(result.released.values()) == ["n1", "n2"]
    ((reason, message),) = result.pending.values()
    assert reason == "InsufficientResource"
    assert "host-port:8080/TCP" in message


def test_sidecars_and_pods_on_the_network_of_the_host_take_ports(cluster: Cluster) -> None:
    network = pod_object("network", hostNetwork=True)
    network["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    sidecar = {"name": "s", "image": "x", "restartPolicy": "Always", "ports": [{"hostPort": 8080}]}
    for name, body in (("n1", network), ("n2", pod_object("side", initContainers=[sidecar]))):
        cluster.api.create(PODS, body, SPACE)
        cluster.api.bind(body["metadata"]["name"], SPACE, name)
    cluster.add(asking("p", (8080, "TCP", "")))
    starts = {"name": "i", "image": "x", "ports": [{"hostPort": 8080}]}
    cluster.add(pod_object("starts", initContainers=[starts]))
    assert list(cluster.loop.step().released) == [f"{SPACE}/starts"]


def test_who_is_promised_a_node_has_its_port_until_it_is_bound(cluster: Cluster) -> None:
    cluster.add(asking("p", (8080, "TCP", "")))
    (first,) = cluster.loop.step().released.values()
    cluster.add(asking("q", (8080, "TCP", "")))
    (second,) = cluster.loop.step().released.values()
    assert first != second
    cluster.bind()
    cluster.add(asking("r", (8080, "TCP", "")))
    assert cluster.loop.step().released == {}
