"""What a worker process and its parent say to each other: JSON texts over a pipe.

    parent  {"start": {"run_id": ..., "board": ..., "device_kind": "mock", "slow_dispatch": false}}
    worker  {"ready": true}, or {"unable": why}
    parent  {"job": {"case_id": ..., "op": ..., "arguments": [[name, text], ...], ...}}
    worker  {"attempt": {"as_recorded": true, "outputs": [], "attempt": {...}}}

The parent may send further jobs before the first is answered; they are answered in their order. It
closes the pipe when there is nothing more to do. At which stage of a job the worker is, it says in
memory that both share (``stages``).
"""

from __future__ import annotations

import json
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.codec.text import Json, write
from optrove.model.records import DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection


@dataclass(frozen=True, slots=True)
class Ground:
    """What a worker process is set up for, and keeps until it ends."""

    run_id: str
    device_kind: DeviceKind
    board: str | None
    slow_dispatch: bool = False

    def to_json(self) -> Json:
        """Return it as the worker reads it."""
        return {
            "run_id": self.run_id,
            "device_kind": self.device_kind.value,
            "board": self.board,
            "slow_dispatch": self.slow_dispatch,
        }

    @staticmethod
    def from_json(data: Json) -> Ground:
        """Return what ``to_json`` has written."""
        return Ground(
            data["run_id"], DeviceKind(data["device_kind"]), data["board"], data["slow_dispatch"]
        )


class Channel:
    """One end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Once for all: the connection's own ``poll`` makes a new selector each time.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)

    def send(self, kind: str, content: Json) -> None:
        """Send a message; OSError when nobody is at the other end."""
        self.send_message(write({kind: content}))

    def send_message(self, message: str) -> None:
        """Send a message that is JSON already; OSError when nobody is at the other end."""
        self._connection.send_bytes(message.encode("ascii"))

    def wait(self, seconds: float) -> bool:
        """Tell whether a message, or the end, has come within this time."""
        return bool(self._arrivals.poll(max(0, seconds * 1000)))  # less is for ever

    def receive(self) -> tuple[str, Json]:
        """Return the next message; EOFError when the other end is closed."""
        try:
            content = self._connection.recv_bytes()
        except ConnectionResetError as error:  # it ended with something unread
            raise EOFError from error
        # Both ends are ours, and the strict reader takes several times as long.
        ((kind, told),) = json.loads(content).items()
        return kind, told

    def messages(self) -> Iterator[tuple[str, Json]]:
        """Yield messages until the other end is closed."""
        while True:
            try:
                yield self.receive()
            except EOFError:  # noqa: PERF203 - the end of the loop
                return

    def close(self) -> None:
        """Close this end."""
        self._connection.close()
