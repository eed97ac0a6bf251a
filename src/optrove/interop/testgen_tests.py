"""Write the test function of a group of cases: its parameters, its call, its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.interop.testgen_cases import Filling, Numbers
from optrove.interop.testgen_ids import ids_of
from optrove.interop.testgen_layout import (
    Bracket,
    Expression,
    call,
    laid_out,
    named,
    prefixed,
    row,
    tuple_of,
)
from optrove.interop.testgen_spelling import quoted
from optrove.model.values import Set, Struct, TensorSpec, TtnnPlacement
from optrove.model.walk import key_step, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.interop.testgen_cases import Recorded
    from optrove.interop.testgen_constants import Constants
    from optrove.interop.testgen_groups import Argument, Group
    from optrove.interop.testgen_tensors import Tensors

_INDENT: Final = 4
_SHOWN: Final = 12

TALKING: Final = frozenset(
    {"cluster_axis", "topology", "num_links", "multi_device_global_semaphore", "barrier_semaphore"}
)
"""Parameters of operations in which chips talk to each other; golden functions know one chip."""

CRASHING: Final = frozenset(
    {"ttnn.experimental.paged_update_cache", "ttnn.experimental.paged_fused_update_cache"}
)
"""Operations that end the process on a mock device when they work on a part of a mesh."""


@dataclass(frozen=True, slots=True)
class TestFunction:
    """The text of a test function, in parts."""

    __test__ = False  # not a test, in spite of its name

    decorator: str
    signature: str
    docstring: str
    body: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Writing:
    """Writes test functions of one file."""

    tensors: Tensors
    constants: Constants

    def argument(self, recorded: Recorded, name: str) -> Expression:
        """Return the value of an argument of a case; Unspellable if there is none."""
        value, path = dict(recorded.case.arguments)[name], f"$.arguments{key_step(name)}"
        if isinstance(value, Struct):
            return self.constants.use(value, path)
        return self.tensors.spelled(value, filling_for(recorded, name), path)

    def output(self, recorded: Recorded) -> Expression:
        """Return the specs of what came out; None if that is not known."""
        specs = output_specs(recorded)
        expressions = [self.tensors.spec(spec, None, "$.outputs") for spec in specs]
        if not expressions:
            return "None"
        return expressions[0] if len(expressions) == 1 else row(expressions)

    def function(self, group: Group, name: str) -> TestFunction:
        """Return the test function of a group."""
        has_output = any(output_specs(each) for each in group.cases)
        parameters = [each.variable for each in group.parameters]
        variables = [*parameters, *(["output"] if has_output else [])]
        made = ["make"] if any(each.is_tensor for each in group.arguments) else []
        live = ["device"] if any(each.live for each in group.arguments) else []
        fixtures = [*made, "check", *live]
        annotated = [f"{fixture}: {FIXTURES[fixture]}" for fixture in fixtures]
        annotated += [f"{variable}: Any" for variable in variables]
        definition = Bracket(f"def test_{name}(", tuple(annotated), ") -> None:")
        body = self.lines(group, None, has_output=has_output)
        return TestFunction(
            decorator=laid_out(self._decorator(group, variables)) if variables else "",
            signature=laid_out(definition),
            docstring=_docstring(group, has_output=has_output),
            body=body,
        )

    def lines(self, group: Group, only: Recorded | None, *, has_output: bool) -> tuple[str, ...]:
        """Return the statements of a test: make what is used twice, call, check.

        They are for one case with its own values, or for all with the test's parameters.
        """
        lines = []
        for each in group.arguments:
            if each.is_tensor and is_shared(each, group):
                made = call(
                    "make", each.variable if only is None else self.argument(only, each.name)
                )
                lines.append(laid_out(prefixed(f"{each.variable} = ", made), _INDENT))
        lines.append(laid_out(prefixed("call = ", self._call(group, only)), _INDENT))
        given = ["call", *(["output"] if has_output else [])]
        if is_talking(group):
            lines.append(
                "# Chips talk to each other, and a golden function knows of one chip only."
            )
            given.append("golden=False")
        if only is not None and has_output:
            lines.append(laid_out(prefixed("output = ", self.output(only)), _INDENT))
        lines.append(f"check({', '.join(given)})")
        return tuple(lines)

    def _call(self, group: Group, only: Recorded | None) -> Expression:
        items: list[Expression] = [group.op]
        owners = {each.name: each for each in group.arguments}
        for each in group.arguments:
            item = self._item(each, group, only)
            if each.alias is not None:
                item = owners[each.alias].variable
            items.append(item if each.keyword is None else named(each.keyword, item))
        return call("partial", *items)

    def _item(self, argument: Argument, group: Group, only: Recorded | None) -> Expression:
        if argument.is_tensor and is_shared(argument, group):
            return argument.variable
        if only is None and argument.varies:
            written: Expression = argument.variable
        else:
            written = self.argument(only or group.cases[0], argument.name)
        return call("make", written) if argument.is_tensor else written

    def _decorator(self, group: Group, variables: Sequence[str]) -> Expression:
        names = tuple_of(map(quoted, variables)) if len(variables) > 1 else quoted(variables[0])
        ids = ids_of(group.cases, {each.name: each.variable for each in group.arguments})
        rows = tuple(
            self._row(group, *pair, variables) for pair in zip(group.cases, ids, strict=True)
        )
        comments = tuple(_comment(each) for each in group.cases)
        return call("@pytest.mark.parametrize", names, Bracket("[", rows, "]", comments=comments))

    def _row(
        self, group: Group, recorded: Recorded, own_id: str, variables: Sequence[str]
    ) -> Expression:
        values = [self.argument(recorded, each.name) for each in group.parameters]
        if variables[-1] == "output" and len(variables) > len(values):
            values.append(self.output(recorded))
        marks = ["marks=crashes_on_mock"] if is_crashing(recorded) else []
        return call("pytest.param", *values, *marks, f"id={quoted(own_id)}")


FIXTURES: Final = {
    "make": "Callable[[Any], Any]",
    "check": "Callable[..., None]",
    "device": "ttnn.MeshDevice",
}


def is_shared(argument: Argument, group: Group) -> bool:
    """Tell whether other arguments are the same tensor as this one."""
    return any(each.alias == argument.name for each in group.arguments)


def is_talking(group: Group) -> bool:
    """Tell whether chips talk to each other in the calls of a group."""
    return group.opening.chips > 1 and any(each.name in TALKING for each in group.arguments)


def is_crashing(recorded: Recorded) -> bool:
    """Tell whether a call would end the process on a mock device."""
    case = recorded.case
    coordinates = dict(case.arguments).get("mesh_coords")
    if case.op not in CRASHING or not isinstance(coordinates, Set):
        return False
    shapes = {
        part.placement.mesh_shape
        for _, value in case.arguments
        for _, part in walk(value)
        if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
    }
    chips = max((_product(shape) for shape in shapes if shape), default=1)
    return len(coordinates.items) < chips


def _product(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def output_specs(recorded: Recorded) -> list[TensorSpec]:
    """Return the tensors of ttnn that came out; empty if that was not recorded."""
    if recorded.outputs is None:
        return []
    return [
        part
        for value in recorded.outputs
        for _, part in walk(value)
        if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
    ]


def filling_for(recorded: Recorded, name: str) -> Filling:
    """Return what the tensors of an argument hold."""
    known = {each.argument: each for each in recorded.fillings}
    return known.get(name, Filling(name, Numbers.NORMAL))


def _comment(recorded: Recorded) -> str:
    calls = recorded.calls
    counted = "" if calls is None else f", {calls:,} call{'' if calls == 1 else 's'}"
    return f"Case {recorded.case_id[:_SHOWN]}{counted}"


def _docstring(group: Group, *, has_output: bool) -> str:
    count = len(group.cases)
    cases = "one case" if count == 1 else f"{count} cases"
    told = "" if has_output else "; what came out was not recorded"
    return f"Check {cases} of {group.op}{told}."
