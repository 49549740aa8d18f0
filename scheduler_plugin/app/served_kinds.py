"""Kinds that a cluster may or may not serve, in one of several versions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from wattpack.clock import Clock
from wattpack.kube.port import ForbiddenError, JsonObject, KubeApi, NotFoundError, Resource
from wattpack.units import seconds_to_ns

__all__ = ["LOOK_AGAIN_SECONDS", "ServedKinds"]

#: A kind that is not served may be installed at any time.
LOOK_AGAIN_SECONDS = 60.0
log = logging.getLogger(__name__)


class ServedKinds:
    """Lists objects of whichever version is served.

    Args:
        api: The cluster.
        clock: For when to look again for a kind that is not served.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._look_at_ns: dict[tuple[Resource, ...], int] = {}
        self._told: set[tuple[Resource, ...]] = set()
        self._served: dict[tuple[Resource, ...], Resource] = {}

    def version(self, kinds: tuple[Resource, ...]) -> Resource:
        """The one that was served last; the oldest before anything was read."""
        return self._served.get(kinds, kinds[-1])

    def is_served(self, kinds: tuple[Resource, ...]) -> bool:
        """Whether the last look found one that is served and that we may read."""
        return kinds in self._served

    def objects(self, kinds: tuple[Resource, ...]) -> Sequence[JsonObject]:
        """All objects of a kind; none where it is not served, which is told once.

        Args:
            kinds: Its versions, the newest first.

        Raises:
            KubeError: if the API does not answer.
        """
        if self._clock.monotonic_ns() < self._look_at_ns.get(kinds, 0):
            return ()
        known = self._served.get(kinds)
        why = ""
        for kind in kinds if known is None else (known,):
            try:
                found = self._api.list(kind).items
            except (NotFoundError, ForbiddenError) as error:
                why = str(error)
                continue
            self._served[kinds] = kind
            return found
        self._served.pop(kinds, None)
        # One that was served until now may be there in another version: that is looked for at once.
        pause = 0 if known is not None else seconds_to_ns(LOOK_AGAIN_SECONDS)
        self._look_at_ns[kinds] = self._clock.monotonic_ns() + pause
        if kinds not in self._told:
            self._told.add(kinds)
            log.info("%s of %s are not read here: %s", kinds[0].plural, kinds[0].group, why)
        return ()
