"""The live tensors of a sequence of calls that one process executes as a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.errors import NotReplayable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.model.flow import Outside, Step


class Chain:
    """The tensors of one sequence by their recorded numbers, from step to step.

    ``reference`` is whatever an executor keeps beside them to check later steps.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, Any] = {}
        self._next = 0
        self.reference: Any = None

    def clear(self) -> None:
        """Drop all tensors."""
        self._tensors.clear()
        self.reference = None
        self._next = 0

    def begin(self, step: Step) -> None:
        """Begin a step; the first one forgets an earlier sequence.

        NotReplayable if the steps before it were not executed in this process.
        """
        if step.place == 0:
            self.clear()
        elif step.place != self._next:
            raise NotReplayable("the calls before it were not executed in this process")
        self._next = step.place + 1

    def missing(self, step: Step) -> list[Outside]:
        """Return the tensors from outside that have to be made before a step."""
        return [each for each in step.outside if each.number not in self._tensors]

    def put(self, number: int, live: Any) -> None:
        """Keep a tensor that was made."""
        self._tensors[number] = live

    def known(self, step: Step) -> dict[int, Any]:
        """Return the tensors that a step gets from earlier ones, by their identity in its case."""
        return {
            identity: self._tensors[number]
            for identity, number in step.inputs
            if number in self._tensors
        }

    def owners(self, step: Step) -> dict[int, Any]:
        """Return tensors that share the memory of those which a step gets from elsewhere."""
        return {
            identity: owner
            for identity, number in step.inputs
            if number not in self._tensors and (owner := self.owner(step, number)) is not None
        }

    def owner(self, step: Step, number: int) -> Any:
        """Return a tensor with the memory of another one; None without one."""
        buffers = dict(step.buffers)
        if number not in buffers:
            return None
        sharing = [other for other, each in buffers.items() if each == buffers[number]]
        return next((self._tensors[other] for other in sharing if other in self._tensors), None)

    def end(self, step: Step, made: Mapping[int, Any], results: Iterable[Any]) -> None:
        """Keep the inputs of a step, by identity, and its results for later steps.

        Drop the tensors that the program dropped after it.
        """
        for identity, number in step.inputs:
            if identity in made:
                self._tensors[number] = made[identity]
        numbers = dict(step.outputs)
        for place, live in enumerate(results):
            if place in numbers:
                self._tensors[numbers[place]] = live
        for number in step.freed:
            self._tensors.pop(number, None)
