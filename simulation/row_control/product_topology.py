"""The row as the product's controller knows it: built by the product from ordinary objects."""

from __future__ import annotations

from capacity.profile_library import shipped_library
from controller.membership import GpuSpec, NodeSpec, PodSpec
from controller.tick_values import Topology
from controller.topology import build_topology
from simulation.pod_work import NAMESPACE
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import HIGH, Integers
from simulation.row_objects import RACK_LABEL, domain_objects, policy_objects
from wattpack.api import PowerDomain, PowerPolicy


def product_topology(plant: RowPlant, priority: Integers, gang: Integers | None = None) -> Topology:
    """Guaranteed caps, floors and the tree as the product makes them of the row's objects.

    Args:
        plant: Servers, boards and breakers.
        priority: ``LOW`` or ``HIGH`` of each board's work, (n_gpus,).
        gang: Number of the gang of each board, -1 for none; None for no gangs, (n_gpus,).

    Raises:
        SafetyError: if I1 cannot hold.
    """
    scenario = plant.scenario
    boards = [
        GpuSpec(
            uuid=str(spec.uuid),
            model=spec.model,
            min_limit_watts=spec.min_limit_watts,
            default_limit_watts=spec.default_limit_watts,
            max_limit_watts=spec.max_limit_watts,
            max_clock_mhz=spec.max_clock_mhz,
        )
        for spec in plant.bank.specs
    ]
    g = plant.gpus_per_node
    nodes = [
        NodeSpec(
            name,
            tuple(boards[i * g : (i + 1) * g]),
            {RACK_LABEL: f"rack-{plant.rack_of_node[i]}"},
            host_unit=True,
        )
        for i, name in enumerate(plant.node_names)
    ]
    by_value = sorted(scenario.priority_classes, key=lambda c: c.value)
    pods = [
        PodSpec(
            NAMESPACE,
            f"work-{i}",
            (board.uuid,),
            priority_class=(by_value[-1] if priority[i] == HIGH else by_value[0]).name,
            gang="" if gang is None or gang[i] < 0 else f"gang-{gang[i]}",
        )
        for i, board in enumerate(boards)
    ]
    library = shipped_library()
    return build_topology(
        [PowerDomain.from_json(body) for _, body in domain_objects(scenario)],
        [PowerPolicy.from_json(body) for _, body in policy_objects(scenario)],
        nodes,
        pods,
        {spec.model: library.find(spec.model) for spec in plant.bank.specs},
    )
