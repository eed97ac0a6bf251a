"""Judge what a device computed for a call, where PCC sees nothing.

How far off a kernel may be comes from the model of it that hardware numerics have: by its math
fidelity, its accumulation, the order and length of its sums, the formats between its steps. Without
a model it comes from the golden function with moved inputs. Nothing of this is computed for a
result that is the golden one, rounded once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.executor import Judged
from optrove.frameworks.ttnn.board.runtime import installed_version
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.shadow.golden import mapped
from optrove.frameworks.ttnn.shadow.hardware import (
    ELEMENTWISE,
    FAST,
    HardwareNumerics,
    agrees_with_kernels,
)
from optrove.frameworks.ttnn.shadow.matrix_kernels import KERNEL_FUNCTIONS
from optrove.model.records import OTHERWISE
from optrove.portable import device_judging as judging
from optrove.portable.judging import UNITS
from optrove.settings import Numerics, find_numerics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from optrove.frameworks.ttnn.shadow.golden import GoldenCall, GoldenFunctions
    from optrove.frameworks.ttnn.shadow.hardware import CallFacts

VERIFIED: Final = "0.78."
"""The release with whose kernels hardware numerics were compared."""

FEW_UNITS: Final = 2.0
"""How many units of the last place are no difference from a model of the kernel."""

SEVERAL_CHIPS: Final = 1 / 8
"""How far off sums of several chips may be, as part of their size: nothing models them."""

FAST_ERROR: Final = 1 / 4
"""How far off fast functions without a model may be: that of tanh gives 0.90 for 0.76."""


class KernelModels(HardwareNumerics):
    """Answers with golden functions, and inside ``in_use`` with the models of kernels.

    ``known`` are answers of the shadow for the same call, which need not be computed again.
    ``is_modeled`` and ``agrees`` are about the answers since ``in_use`` began.
    """

    def __init__(self, ttnn: Any) -> None:
        super().__init__(ttnn, KERNEL_FUNCTIONS, Counter(), Counter())
        self.known: list[Any] = []
        self.is_modeled = self.agrees = False
        self._is_in_use = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Answer with models."""
        self._is_in_use = self.is_modeled = self.agrees = True
        try:
            yield
        finally:
            self._is_in_use = False

    def answer(
        self,
        name: str,
        facts: CallFacts,
        output: str,
        values: tuple[tuple[Any, ...], Mapping[str, Any]],
        golden: Callable[[], Any],
    ) -> Any:
        """Return the result of a call."""
        if not self._is_in_use:
            return golden()
        found = self.known.pop(0) if self.known else self.modeled(name, facts, output, values)
        self.is_modeled = self.is_modeled and found is not None
        shapes = [tuple(each.shape) for each in values[0] if hasattr(each, "shape")]
        self.agrees = self.agrees and agrees_with_kernels(name, facts, shapes)
        return golden() if found is None else found


class DeviceJudge:
    """Judges the results of one call.

    ``calls`` are the golden calls of its chips, one if they are all alike; None for an operation
    that reads several chips.
    """

    def __init__(
        self,
        ttnn: Any,
        golden: GoldenFunctions,
        call: tuple[Any, list[GoldenCall] | None, Any],
        *,
        runs_kernels: bool,
    ) -> None:
        """Judge the result of an operation with its golden calls."""
        self._ttnn = ttnn
        self._golden = golden
        self._operation, self._calls, self._result = call
        self._modeled: list[Any] | None = None
        held = runs_kernels and find_numerics() is Numerics.HARDWARE
        self._is_held_to_bits = held and installed_version().startswith(VERIFIED)

    def judged(self, tensor: Any, place: int, chip: int, pair: tuple[Any, Any]) -> Judged:
        """Return what is wrong with one output on one chip: the expected numbers, the found."""
        answer, actual = pair
        answer = answer.reshape(actual.shape)
        if judging.rounded_alike(actual, (self._packed(answer, tensor),)):
            return Judged()
        form = tensor.dtype.name
        expected, is_known = self._expected(place, chip, answer, form)
        if expected.modeled is not None and judging.rounded_alike(actual, (expected.modeled,)):
            return Judged()
        faults = judging.faults(actual, expected, form)
        if faults and self._calls is not None:
            opened = judging.without_flushed(expected, self._again(place, chip))
            faults = judging.faults(actual, opened, form)
        if faults or not (is_known and self._is_held_to_bits):
            return Judged(faults=tuple(faults))
        bits = replace(expected, exact=expected.modeled, share=0.0, units=FEW_UNITS)
        wrong, bound = judging.wrong_elements(actual, bits, form)
        if not bool(wrong.any()):
            return Judged()
        return Judged(notes=(OTHERWISE + judging.shown_elements(actual, bits, wrong, bound),))

    def _packed(self, answer: Any, tensor: Any) -> Any:
        """Return a golden result as a tensor of blocks holds it; others as they are."""
        if tensor.dtype not in (self._ttnn.bfloat8_b, self._ttnn.bfloat4_b):
            return answer
        return self._golden.unpack(self._golden.pack(answer, tensor))

    def _expected(
        self, place: int, chip: int, answer: Any, form: str
    ) -> tuple[judging.Expected, bool]:
        """Return what is expected of an output, and whether its bits are known."""
        if self._calls is None:
            if form not in judging.FRACTIONS and judging.is_held(answer):
                return judging.by_rounding(answer, UNITS), False
            return judging.by_size(answer, SEVERAL_CHIPS), False
        name = self._operation.python_fully_qualified_name
        models, facts = self._golden.hardware, self._own(chip).facts
        if isinstance(models, KernelModels) and facts is not None:
            if self._modeled is None:
                with models.in_use():
                    self._modeled = self._golden.answers(self._operation, self._calls, self._result)
            modeled = _of_chip(self._modeled[place][1], chip)
            if models.is_modeled and modeled is not None:
                sums = name not in ELEMENTWISE
                agrees = models.agrees
                return judging.by_model(answer, modeled, compared=agrees, sums=sums), agrees
        again = self._again(place, chip)
        if judging.only_moves(answer, again, form):
            keeps = facts is not None and set(facts.dtypes) == {form}
            units = 0.0 if op_of(name).moves_only and keeps else UNITS
            return judging.by_rounding(answer, units), False
        if self._own(chip).keywords.get(FAST):
            return judging.by_size(answer, FAST_ERROR, judging.UNMODELED_DEFAULT), False
        given = None if facts is None else facts.configuration
        fidelity = "" if given is None else given.math_fidelity.name
        return judging.by_moves(answer, again, name, fidelity), False

    def _own(self, chip: int) -> GoldenCall:
        """Return the golden call of a chip."""
        assert self._calls is not None  # noqa: S101 - narrows the type; the caller has looked
        return self._calls[chip if len(self._calls) > 1 else 0]

    def _again(self, place: int, chip: int) -> Callable[[Callable[[Any], Any]], Any]:
        """Return a function that computes an output with each tensor of the call changed."""
        own = self._own(chip)

        def again(change: Callable[[Any], Any]) -> Any:
            def changed(value: Any) -> Any:
                return change(value) if hasattr(value, "is_floating_point") else value

            moved = replace(
                own,
                arguments=mapped(changed, own.arguments),
                keywords=mapped(changed, dict(own.keywords)),
            )
            found = self._golden.answers(self._operation, [moved], self._result)
            return _of_chip(found[place][1], 0)

        return again


def _of_chip(answers: Any, chip: int) -> Any:
    """Return the answer for a chip; None if there is none."""
    return answers[chip if len(answers) > 1 else 0] if isinstance(answers, list) else None
