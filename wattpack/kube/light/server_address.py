"""Where the API server is and who we are, for ``LightKube``: service account or kubeconfig."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wattpack.errors import InputError
from wattpack.hosts import is_loopback
from wattpack.kube.port import ForbiddenError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A bound service-account token is about 1.2 kB; servers refuse headers of this size anyway.
MAX_TOKEN_BYTES = 16384


@dataclass(frozen=True, slots=True)
class Server:
    """One API server and the bearer token shown to it.

    Attributes:
        host: Name or address, an IPv6 address without brackets.
        ca_file: PEM file of its authority; read anew for each call.
        ca_pem: The same as text, where there is no file.
        token_file: Read anew for each call: the kubelet rotates projected tokens.
        token: Where there is no file.
        tls: False only on loopback, in tests.
    """

    host: str
    port: int
    ca_file: Path | None = None
    ca_pem: str = ""
    token_file: Path | None = None
    token: str = ""
    tls: bool = True

    def __post_init__(self) -> None:
        if not self.host:
            raise InputError("server", "a host", self.host)
        if not 1 <= self.port <= 65535:
            raise InputError("server", "a port, 1 to 65535", self.port)
        if not self.tls and not is_loopback(self.host):
            raise InputError("server", "https, for a token would be readable", self.host)

    def bearer_token(self) -> str:
        """The token as it is now.

        Raises:
            OSError: if its file cannot be read.
            ForbiddenError: for what can be no token.
        """
        if self.token_file is None:
            text = self.token
        else:
            with self.token_file.open("rb") as file:
                text = file.read(MAX_TOKEN_BYTES + 1).decode("ascii", errors="replace").strip()
        printable = text.isascii() and text.isprintable() and " " not in text
        if not text or len(text) > MAX_TOKEN_BYTES or not printable:
            raise ForbiddenError(f"{self.token_file or 'token'}: no bearer token")
        return text


def in_cluster(
    environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT
) -> Server:
    """The API server that runs our pod.

    Raises:
        InputError: outside a cluster.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InputError("KUBERNETES_SERVICE_HOST", "set, as in a pod, or --kubeconfig", host)
    if not port.isascii() or not port.isdigit():
        raise InputError("KUBERNETES_SERVICE_PORT", "a port", port)
    return Server(host, int(port), ca_file=folder / "ca.crt", token_file=folder / "token")


def from_kubeconfig(path: Path) -> Server:
    """The API server of a kubeconfig's current context, with a token or a token file.

    Client certificates and credential plug-ins are for people; an agent is a service account.

    Raises:
        InputError: naming what is missing or cannot be used.
    """
    # A pod has no kubeconfig and does not pay for the parser.
    from wattpack.documents import read_yaml

    source = str(path)
    try:
        config = read_yaml(path)
    except InputError as error:
        raise InputError("kubeconfig", error.expected, error.got, source) from error
    if not isinstance(config, dict):
        raise InputError("kubeconfig", "a mapping", config, source)
    context = _named(config, "contexts", "context", config.get("current-context"), source)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), source)
    user = _named(config, "users", "user", context.get("user"), source)
    token, token_file = user.get("token"), user.get("tokenFile")
    if not isinstance(token, str) and not isinstance(token_file, str):
        raise InputError("users.user.token", "a token or tokenFile", sorted(user), source)
    host, port, tls = _address(cluster.get("server"), source)
    ca_file = cluster.get("certificate-authority")
    return Server(
        host,
        port,
        ca_file=path.parent / ca_file if isinstance(ca_file, str) else None,
        ca_pem=_pem(cluster.get("certificate-authority-data"), source),
        token_file=path.parent / token_file if isinstance(token_file, str) else None,
        token=token if isinstance(token, str) else "",
        tls=tls,
    )


def _address(url: object, source: str) -> tuple[str, int, bool]:
    expected = "an https URL without a path"
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port
    except ValueError as error:
        raise InputError("clusters.cluster.server", expected, url, source) from error
    plain = parts.path in {"", "/"} and not parts.query
    if parts.scheme not in {"http", "https"} or not parts.hostname or not plain:
        raise InputError("clusters.cluster.server", expected, url, source)
    tls = parts.scheme == "https"
    return parts.hostname, port or (443 if tls else 80), tls


def _pem(data: object, source: str) -> str:
    if data is None:
        return ""
    try:
        return base64.b64decode(str(data), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise InputError(
            "clusters.cluster.certificate-authority-data", "base64 of PEM", data, source
        ) from error


def _named(
    config: Mapping[str, Any], plural: str, singular: str, name: object, source: str
) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(singular)
            if isinstance(found, dict):
                return found
    raise InputError(plural, f"an entry {name!r} with a {singular}", entries, source)
