"""The jobs of a training fleet as pods of the twin: whoever plans them decides where they run.

A pod draws what its job draws in the mean over computing and waiting; a gang's pods have a server's
GPUs each and start together. Which server a job had in the fleet's own account has no meaning here.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.pod_work import Work, WorkKind
from simulation.scenario import Scenario
from simulation.training_fleet.fleet_jobs import Job, fleet_jobs
from simulation.training_fleet.fleet_settings import FleetSettings


def fleet_works(scenario: Scenario, settings: FleetSettings) -> Iterator[Work]:
    """Pods in the order of their begin; jobs that run at time 0 come when the first batch pods do.

    Args:
        scenario: Servers, length and seed.
        settings: The fleet.
    """
    row = scenario.row
    end = scenario.warmup_seconds + scenario.duration_seconds
    jobs = fleet_jobs(settings, row.servers, row.gpus_per_server, end, scenario.seed)
    for number, job in enumerate(sorted(jobs, key=lambda one: one.begin_seconds)):
        yield from _pods(scenario, settings, number, job)


def _pods(scenario: Scenario, settings: FleetSettings, number: int, job: Job) -> Iterator[Work]:
    row, batch = scenario.row, scenario.batch
    begin = max(job.begin_seconds, batch.first_pod_seconds)
    if job.end_seconds <= begin:
        return
    gpus = row.gpus_per_server if job.gang else len(job.boards)
    members = len(job.boards) // gpus
    share = gpus / row.gpus_per_server
    level = job.active_share * job.level + (1.0 - job.active_share) * settings.waiting_level
    for member in range(members):
        name = f"fleet-{number}"
        yield Work(
            name=f"{name}-{member}",
            kind=WorkKind.BATCH,
            workload=name,
            priority_class=batch.priority_class,
            gpus=gpus,
            milli_cpu=int(0.8 * share * row.milli_cpu_per_server),
            memory_bytes=int(0.8 * share * row.memory_bytes_per_server),
            start_seconds=begin,
            duration_seconds=job.end_seconds - begin,
            load_ratio=level,
            gang=name if members > 1 else "",
            gang_size=members,
        )
