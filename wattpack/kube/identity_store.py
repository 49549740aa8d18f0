"""A server's identity in a Secret that all replicas share, and its authority where clients look.

Secret (tls.crt, tls.key, ca.crt, ca.key) <-- IdentityStore --> server (every replica)
webhook configuration or ConfigMap (ca.crt)  <----- Publish
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Sequence

from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.port import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    SECRETS,
    AlreadyExistsError,
    ConflictError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)
from wattpack.periodic import PeriodicThread
from wattpack.units import seconds_to_ns
from wattpack.wire.certificates import ServingIdentity, identity_from_data, new_identity, renewed

log = logging.getLogger(__name__)
_ATTEMPTS = 5
#: Also how soon a webhook or ConfigMap that was installed anew gets its authority again.
CHECK_SECONDS = 60.0
RETRY_SECONDS = 15.0

Publish = Callable[[bytes], None]
"""Puts a bundle of authorities, PEM, where the clients look; does nothing if it is there."""


class IdentityStore:
    """Makes and keeps a server's identity.

    Args:
        api: The cluster.
        clock: Wall time decides on renewal.
        namespace: Of the Secret.
        secret: Name of the Secret.
        names: DNS names and addresses that the certificate must carry.
        publish: Tells clients whom to trust.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        namespace: str,
        secret: str,
        names: Sequence[str],
        publish: Publish,
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._secret = secret
        self._names = tuple(names)
        self._publish = publish

    def ensure(self) -> ServingIdentity:
        """The identity to serve with now; made or renewed if need be, the same for all replicas.

        Raises:
            ConflictError: if other replicas kept writing in between.
            KubeError: if the API does not answer.
        """
        for _ in range(_ATTEMPTS):
            try:
                identity = self._attempt()
                self._publish(identity.ca_bundle)
                return identity
            except (ConflictError, AlreadyExistsError):
                log.info("another replica wrote secret %s or its authority first", self._secret)
        raise ConflictError(f"secret {self._secret}: others keep writing it")

    def _attempt(self) -> ServingIdentity:
        now_ns = self._clock.wall_time_ns()
        try:
            stored = self._api.get(SECRETS, self._secret, self._namespace)
        except NotFoundError:
            fresh = new_identity(self._names, now_ns)
            self._api.create(SECRETS, self._body({}, fresh), self._namespace)
            return fresh
        present = self._read(stored)
        if present is None:
            identity = new_identity(self._names, now_ns)
        else:
            identity = renewed(present, self._names, now_ns)
        if identity is not present:
            self._api.replace(SECRETS, self._body(stored, identity), self._namespace)
        return identity

    def _read(self, stored: JsonObject) -> ServingIdentity | None:
        """The identity in a Secret; None if it is empty or holds something else: replaced."""
        if not stored.get("data"):
            return None  # as the installer makes it
        try:
            data = {
                key: base64.b64decode(text, validate=True)
                for key, text in (stored.get("data") or {}).items()
            }
            return identity_from_data(data, f"secret {self._secret}")
        except (InputError, TypeError, binascii.Error) as error:
            log.warning("replacing an unusable certificate: %s", error)
            return None

    def _body(self, stored: JsonObject, identity: ServingIdentity) -> JsonObject:
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


def publish_to_webhook(api: KubeApi, webhook: str) -> Publish:
    """Every webhook of the MutatingWebhookConfiguration trusts the authority."""

    def publish(ca_bundle: bytes) -> None:
        bundle = base64.b64encode(ca_bundle).decode()
        try:
            body = api.get(MUTATING_WEBHOOKS, webhook)
        except NotFoundError:
            log.info("webhook %s does not exist (mode is not Manage)", webhook)
            return
        operations = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": bundle}
            for i, entry in enumerate(body.get("webhooks") or ())
            if entry.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if operations:
            version = body["metadata"]["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            api.patch_json(MUTATING_WEBHOOKS, webhook, [test, *operations])

    return publish


def publish_to_config_map(api: KubeApi, namespace: str, name: str) -> Publish:
    """``ca.crt`` of the ConfigMap, which pods mount, is the authority; the installer makes it."""

    def publish(ca_bundle: bytes) -> None:
        text = ca_bundle.decode("ascii")
        body = api.get(CONFIG_MAPS, name, namespace)
        if (body.get("data") or {}).get("ca.crt") == text:
            return
        # Nothing else is kept in it, and all replicas write the same: no test of the version.
        add = {"op": "add", "path": "/data", "value": {"ca.crt": text}}
        api.patch_json(CONFIG_MAPS, name, [add], namespace)

    return publish


class IdentityKeeper(PeriodicThread):
    """Renews what a server shows, in a thread of its own.

    Args:
        use: Serves new connections with an identity; open ones go on.
        store: Where the identity comes from.
        clock: For the pauses.
    """

    def __init__(
        self, use: Callable[[ServingIdentity], None], store: IdentityStore, clock: Clock
    ) -> None:
        period_ns = seconds_to_ns(CHECK_SECONDS)
        super().__init__(clock, "certificate", period_ns, first_ns=period_ns)
        self._use = use
        self._store = store

    def run_once(self) -> int:
        """Look after the certificate; the pause until the next look, in ns."""
        return seconds_to_ns(CHECK_SECONDS if self.renew() else RETRY_SECONDS)

    def renew(self) -> bool:
        """Look once; False if the cluster did not answer, and what was shown is shown on."""
        try:
            self._use(self._store.ensure())
        except KubeError as error:
            log.warning("certificate not checked: %s", error)
            return False
        return True
