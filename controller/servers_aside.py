"""Servers that count elsewhere than in the domain that claims them, and the words for it. Pure.

A domain whose newest spec is refused limits nothing, but its servers draw through the breakers
above it (I1). Both sides say so: the one that is refused, and the one in which they count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from controller.membership import NodeSpec
from controller.tick_values import Transition
from wattpack.power.power_grid import PowerGrid

__all__ = ["Aside", "counted_aside", "moves_aside", "told_where_they_count"]

# So many domains are named in one message.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Aside:
    """Servers that a domain claims by a spec that does not run.

    Attributes:
        claimed_by: The domain.
        counted_in: The nearest one above it that runs, or itself; empty for none.
    """

    claimed_by: str
    counted_in: str
    servers: int

    def of_the_refused(self) -> str:
        """What becomes of them, for the one that claims them."""
        if not self.counted_in:
            where = "nowhere: no accepted domain above it is known"
            return f"its {_servers(self.servers, 'count')} {where}"
        if self.counted_in == self.claimed_by:
            servers = f"{self.servers} server{'s' * (self.servers != 1)} more than was accepted"
            return f"{servers} count{'s' * (self.servers == 1)} in it"
        return f"its {_servers(self.servers, 'count')} in {self.counted_in}"

    def of_the_counting(self) -> str:
        """The same for the one in which they count."""
        return f"{_servers(self.servers, 'count')} here for {self.claimed_by}, which is not in use"


def counted_aside(grid: PowerGrid, nodes: Sequence[NodeSpec]) -> tuple[Aside, ...]:
    """By claiming domain and by where they count, servers that count only by such a claim.

    A server that two of them claim is named for both, and counts once.
    """
    found: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        feeding = grid.feeding(node.name, node.labels)
        found.update((name, feeding.domain) for name in feeding.through)
    return tuple(Aside(*names, servers) for names, servers in sorted(found.items()))


def told_where_they_count(aside: Sequence[Aside], domain: str) -> str:
    """What to say of a domain in which servers of others count; empty for none."""
    here = [a for a in aside if a.counted_in == domain != a.claimed_by]
    more = [f"and more for {len(here) - _NAMED} other domains"] if len(here) > _NAMED else []
    return "; ".join([*(a.of_the_counting() for a in here[:_NAMED]), *more])


def moves_aside(before: Sequence[Aside], after: Sequence[Aside]) -> list[Transition]:
    """What began or ended between two looks; a server more or less of the same is no news."""
    old = {(a.claimed_by, a.counted_in) for a in before}
    new = {(a.claimed_by, a.counted_in) for a in after}
    began = [_began(a) for a in after if (a.claimed_by, a.counted_in) not in old]
    return [*began, *(_ended(*names) for names in sorted(old - new))]


def _began(aside: Aside) -> Transition:
    name, subject = aside.claimed_by, f"servers of {aside.claimed_by}"
    if not aside.counted_in:
        return Transition(name, subject, "ServersUncounted", aside.of_the_refused())
    own = aside.counted_in == name
    message = aside.of_the_refused() if own else aside.of_the_counting()
    return Transition(aside.counted_in, subject, "ServersCountedAside", message)


def _ended(claimed_by: str, counted_in: str) -> Transition:
    where = "here" if counted_in else "nowhere"
    subject = f"servers of {claimed_by}"
    message = f"{subject} no longer count {where} for it"
    return Transition(counted_in or claimed_by, subject, "ServersCountedBack", message)


def _servers(count: int, verb: str) -> str:
    return f"{count} server {verb}s" if count == 1 else f"{count} servers {verb}"
