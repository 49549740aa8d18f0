"""Requests to an API server, as they are: no client library, no retries, every status returned."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml

from wattpack.errors import PermanentError

REQUEST_SECONDS = 30.0
PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered to one request."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def message(self) -> str:
        """The message of a refused request."""
        return str(self.body.get("message", ""))


class Connection:
    """Connections to one API server, kept for each kubeconfig that was used.

    Args:
        server_url: The server's address.
        kubeconfig: Whose credentials to use when a request names none.
        directory: Where client certificates are written.
    """

    def __init__(self, server_url: str, kubeconfig: Path, directory: Path) -> None:
        self.server_url = server_url
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._pools: dict[Path, tuple[urllib3.PoolManager, dict[str, str]]] = {}

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        patch: str = "",
        kubeconfig: Path | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Answer:
        """Send one request, without retries, and return the answer whatever its status.

        Args:
            method: HTTP method.
            path: From the slash after the host, query included.
            body: Sent as JSON; None sends nothing.
            patch: For PATCH: ``json``, ``merge``, ``strategic`` or ``apply``.
            kubeconfig: Whose credentials; default the administrator's.
            headers: Added to the request's.
            seconds: Time-out of the request.
        """
        pool, credentials = self._pool(kubeconfig or self._kubeconfig)
        sent = {"Content-Type": PATCH_TYPES.get(patch, "application/json"), **credentials}
        answer = pool.request(
            method,
            self.server_url + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={**sent, **(headers or {})},
            timeout=seconds,
            retries=False,
        )
        data = answer.data
        is_json = "json" in answer.headers.get("Content-Type", "")
        parsed = json.loads(data) if data and is_json else {"text": data.decode(errors="replace")}
        return Answer(
            answer.status,
            parsed if isinstance(parsed, dict) else {"items": parsed},
            dict(answer.headers),
        )

    @contextlib.contextmanager
    def watch(self, path: str, *, kubeconfig: Path | None = None) -> Iterator[Iterator[Any]]:
        """The events of a watch until the server ends it; leaving the block closes it.

        Args:
            path: The collection's path with its query, without ``watch``.
            kubeconfig: Whose credentials; default the administrator's.
        """
        pool, headers = self._pool(kubeconfig or self._kubeconfig)
        url = f"{self.server_url}{path}{'&' if '?' in path else '?'}watch=true"
        stream = pool.request(
            "GET",
            url,
            headers=headers,
            preload_content=False,
            retries=False,
            timeout=REQUEST_SECONDS,
        )
        try:
            yield (json.loads(line) for line in iter(stream.readline, b""))
        finally:
            stream.close()

    def forget(self, kubeconfig: Path) -> None:
        """Read the kubeconfig again when it is used next."""
        self._pools.pop(kubeconfig, None)

    def close(self) -> None:
        """Close every connection."""
        for pool, _ in self._pools.values():
            pool.clear()
        self._pools.clear()

    def _pool(self, kubeconfig: Path) -> tuple[urllib3.PoolManager, dict[str, str]]:
        if kubeconfig not in self._pools:
            self._pools[kubeconfig] = _connect(kubeconfig, self._directory)
        return self._pools[kubeconfig]


def cluster_of(kubeconfig: Path) -> tuple[str, bytes]:
    """Address and certificate authority of the kubeconfig's current cluster."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = _named(config, "clusters", "cluster", _context(config)["cluster"])
    authority = _material(cluster, "certificate-authority", kubeconfig.parent)
    return str(cluster["server"]).rstrip("/"), authority


def _context(config: dict[str, Any]) -> dict[str, Any]:
    return _named(config, "contexts", "context", config["current-context"])


def _named(config: dict[str, Any], plural: str, singular: str, name: str) -> dict[str, Any]:
    for entry in config[plural]:
        if entry["name"] == name:
            found: dict[str, Any] = entry[singular]
            return found
    raise PermanentError(f"the kubeconfig has no {singular} {name!r}")


def _material(entry: dict[str, Any], key: str, folder: Path) -> bytes:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return (folder / str(entry[key])).read_bytes()


def _connect(kubeconfig: Path, directory: Path) -> tuple[urllib3.PoolManager, dict[str, str]]:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = _named(config, "clusters", "cluster", _context(config)["cluster"])
    user = _named(config, "users", "user", _context(config)["user"])
    options: dict[str, Any] = {
        "ca_cert_data": _material(cluster, "certificate-authority", kubeconfig.parent).decode(),
        "maxsize": 4,
    }
    headers: dict[str, str] = {}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    else:
        for key, option in (("client-certificate", "cert_file"), ("client-key", "key_file")):
            path = directory / f"{kubeconfig.name}.{option}"
            path.write_bytes(_material(user, key, kubeconfig.parent))
            path.chmod(0o600)
            options[option] = str(path)
    return urllib3.PoolManager(**options), headers
