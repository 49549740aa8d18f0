"""The webhook's certificate in a Secret, shared by all replicas, and its CA in the webhook."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence

from scheduler_plugin.certificates import (
    Identity,
    from_wall_ns,
    identity_from_data,
    new_identity,
    renewed,
)
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.port import (
    MUTATING_WEBHOOKS,
    SECRETS,
    AlreadyExistsError,
    ConflictError,
    JsonObject,
    KubeApi,
    NotFoundError,
)

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5


class IdentityStore:
    """Makes and keeps the webhook's identity.

    Args:
        api: The cluster.
        clock: Wall time decides on renewal.
        namespace: Of the Secret.
        secret: Name of the Secret.
        names: DNS names and addresses that the certificate must carry.
        webhook: MutatingWebhookConfiguration whose ``caBundle`` is kept; empty for none.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        namespace: str,
        secret: str,
        names: Sequence[str],
        webhook: str = "",
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._secret = secret
        self._names = tuple(names)
        self._webhook = webhook

    def ensure(self) -> Identity:
        """The identity to serve with now; made or renewed if need be, the same for all replicas.

        Raises:
            ConflictError: if other replicas kept writing in between.
            KubeError: if the API does not answer.
        """
        identity = self._stored_or_new()
        if self._webhook:
            self._trust(identity)
        return identity

    def _stored_or_new(self) -> Identity:
        for _ in range(_ATTEMPTS):
            try:
                return self._attempt()
            except (ConflictError, AlreadyExistsError):
                _LOG.info("another replica wrote secret %s first", self._secret)
        raise ConflictError(f"secret {self._secret}: others keep writing it")

    def _attempt(self) -> Identity:
        now = from_wall_ns(self._clock.wall_time_ns())
        try:
            stored = self._api.get(SECRETS, self._secret, self._namespace)
        except NotFoundError:
            fresh = new_identity(self._names, now)
            self._api.create(SECRETS, self._body({}, fresh), self._namespace)
            return fresh
        present = self._read(stored)
        if present is None:
            identity = new_identity(self._names, now)
        else:
            identity = renewed(present, self._names, now)
        if identity is not present:
            self._api.replace(SECRETS, self._body(stored, identity), self._namespace)
        return identity

    def _read(self, stored: JsonObject) -> Identity | None:
        """The identity in a Secret; None if it holds something else, which is replaced."""
        try:
            data = {
                key: base64.b64decode(text, validate=True)
                for key, text in (stored.get("data") or {}).items()
            }
            return identity_from_data(data, f"secret {self._secret}")
        except (InputError, binascii.Error) as error:
            _LOG.warning("replacing an unusable certificate: %s", error)
            return None

    def _body(self, stored: JsonObject, identity: Identity) -> JsonObject:
        data = {k: base64.b64encode(v).decode() for k, v in identity.to_data().items()}
        metadata = {"name": self._secret, "namespace": self._namespace}
        return {
            "apiVersion": "v1",
            "kind": SECRETS.kind,
            "type": "kubernetes.io/tls",
            **stored,
            "metadata": {**metadata, **stored.get("metadata", {})},
            "data": data,
        }

    def _trust(self, identity: Identity) -> None:
        """Every webhook of the configuration trusts our authority."""
        bundle = base64.b64encode(identity.ca_bundle).decode()
        try:
            body = self._api.get(MUTATING_WEBHOOKS, self._webhook)
        except NotFoundError:
            _LOG.info("webhook %s does not exist (mode is not Manage)", self._webhook)
            return
        operations = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": bundle}
            for i, webhook in enumerate(body.get("webhooks") or ())
            if webhook.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if operations:
            version = body["metadata"]["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            self._api.patch_json(MUTATING_WEBHOOKS, self._webhook, [test, *operations])
