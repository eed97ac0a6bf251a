"""Send to another trove what it lacks: ``optrove push`` and ``optrove pull``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.flows.scrubbing import scrubbed_parts
from optrove.flows.stores import located, reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.flows.stores import Recovered
    from optrove.store.sharing import Shared


@dataclass(frozen=True, slots=True)
class Transfer:
    """From where to where something is sent; None is the trove that is meant without a name."""

    source: str | None
    target: str | None
    scrub: bool = False


@dataclass(frozen=True, slots=True)
class Transferred:
    """Where it went from and to, and what was new there."""

    source: str
    target: str
    sent: Shared


def share(
    transfer: Transfer,
    tell: Callable[[Recovered], object],
    watch: Callable[[Shared, Shared], object] = lambda _, __: None,
) -> Transferred:
    """Send what is lacking; ``watch`` hears what is there by now, and how much there will be.

    Whatever interrupts it, what was sent stays, and the next time the rest is sent.
    """
    from optrove.store.parts import TroveParts
    from optrove.store.sharing import Shared, send, total_of

    with ExitStack() as stack:
        reader = stack.enter_context(reading(transfer.source, tell))
        trove = stack.enter_context(writing(transfer.target, tell))
        parts = scrubbed_parts(reader) if transfer.scrub else TroveParts(reader.source)
        stack.enter_context(parts.snapshot())
        missing = trove.lacking(parts)
        total, sent = total_of(missing), Shared(cases=0)
        for sent in send(trove, parts, missing):
            watch(sent, total)
    return Transferred(str(located(transfer.source)), str(located(transfer.target)), sent)
