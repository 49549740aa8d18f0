"""Where the API server is and who we are: in-cluster service account or kubeconfig.

The ``kubernetes`` package is imported inside these functions: it costs about 14 MB (37.0.2, without
its models), and a process that uses the embedded API never pays for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wattpack.errors import InputError
from wattpack.kube.client.client_api import ClientKube
from wattpack.kube.client.transport import READ_SECONDS, Transport


def connect(kubeconfig: Path | None = None, context: str | None = None) -> ClientKube:
    """The API server of the given kubeconfig, of our own pod, or of the user's kubeconfig.

    Raises:
        InputError: if there is none, or its description cannot be read.
    """
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    return from_kubeconfig(kubeconfig, context)


def in_cluster() -> ClientKube:
    """The API server that runs our pod; the projected token is read anew each minute."""
    from kubernetes import config

    return _client(
        "in-cluster", lambda settings: config.load_incluster_config(client_configuration=settings)
    )


def from_kubeconfig(
    path: Path | None = None, context: str | None = None, read_seconds: float = READ_SECONDS
) -> ClientKube:
    """The API server of a kubeconfig's context.

    Args:
        path: None for ``KUBECONFIG`` or ``~/.kube/config``.
        context: None for the current one.
        read_seconds: Longest silence of the server within an ordinary answer.

    Raises:
        InputError: if it cannot be read; a file that is named is read strictly.
    """
    from kubernetes import config

    # The agent imports this package for its errors and does without the libraries behind it.
    from wattpack.documents import read_yaml
    from wattpack.scratch_folder import lifelong_folder

    if path is not None:
        # The library's reader takes the last of two equal keys: writes could go to another cluster.
        try:
            read_yaml(path)
        except InputError as error:
            raise InputError("kubeconfig", error.expected, error.got, str(path)) from error

    def load(settings: object) -> None:
        config.load_kube_config(
            config_file=str(path) if path is not None else None,
            context=context,
            client_configuration=settings,
            persist_config=False,
            temp_file_path=str(lifelong_folder()),
        )

    return _client("" if path is None else str(path), load, read_seconds)


def _client(
    source: str, load: Callable[[Any], None], read_seconds: float = READ_SECONDS
) -> ClientKube:
    import urllib3
    import yaml
    from kubernetes.client.configuration import Configuration
    from kubernetes.client.rest import RESTClientObject
    from kubernetes.config.config_exception import ConfigException

    settings = Configuration()
    try:
        load(settings)
    except (
        ConfigException,
        OSError,
        yaml.YAMLError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
    ) as error:
        raise InputError("kubeconfig", "a usable cluster and user", str(error), source) from error
    # Every repetition is the caller's decision: a write that is sent twice is not the same write.
    settings.retries = urllib3.Retry(total=0)
    settings.connection_pool_maxsize = 16

    def authorization() -> str | None:
        value: str | None = settings.auth_settings().get("BearerToken", {}).get("value")
        return value

    rest = RESTClientObject(settings)
    return ClientKube(Transport(rest, settings.host, authorization, read_seconds))
