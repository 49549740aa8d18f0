"""``wattpack bench submit``: measure every GPU type of a cluster that has no profile yet."""

from __future__ import annotations

import argparse

import yaml

from capacity.bench_jobs import BenchJobSettings, bench_job, types_without_profile
from wattpack.api import GPUProfile
from wattpack.kube.port import JOBS, NODES, AlreadyExistsError, KubeApi


def submit(args: argparse.Namespace) -> int:
    """Create the Jobs with the rights of whoever asks, or print them.

    Raises:
        KubeError: if the API refuses or does not answer.
    """
    from wattpack.kube.client import connect  # not loaded where a GPU is measured

    settings = BenchJobSettings(args.image, args.namespace, args.quick)
    return submit_jobs(connect(args.kubeconfig), settings, dry_run=args.dry_run)


def submit_jobs(api: KubeApi, settings: BenchJobSettings, *, dry_run: bool) -> int:
    """One Job a type; those that are there already stay as they are."""
    profiles = api.list(GPUProfile.meta.resource).items
    products = types_without_profile(api.list(NODES).items, profiles)
    jobs = [bench_job(product, settings) for product in products]
    if dry_run:
        print(yaml.safe_dump_all(jobs, sort_keys=False), end="")
        return 0
    for product, job in zip(products, jobs, strict=True):
        name = job["metadata"]["name"]
        try:
            api.create(JOBS, job, settings.namespace)
        except AlreadyExistsError:
            print(f"{product}: Job {name} is there already")
            continue
        print(f"{product}: Job {name} created; kubectl -n {settings.namespace} logs job/{name}")
    if not products:
        print("every whole GPU of this cluster has a GPUProfile object")
    return 0
