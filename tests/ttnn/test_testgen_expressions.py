"""The expressions of generated tests make the recorded values, for every public class of ttnn."""

import importlib.util

import pytest

from optrove.frameworks.ttnn.convert import table as values
from optrove.frameworks.ttnn.execute.files import place_of_file
from optrove.frameworks.ttnn.execute.invoking import Targets
from optrove.frameworks.ttnn.ops import ops_with
from optrove.model.case import Case
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.tables import StructConverter, SymbolConverter, Tables
from optrove.testgen.cases import leading_of
from optrove.testgen.expressions import NO_CONSTRUCTOR, class_path, expression_of, formatted, row
from ttnn_samples import Samples, sharded_memories

pytestmark = pytest.mark.ttnn


@pytest.fixture(scope="module")
def table(ttnn):
    return values.table()


@pytest.fixture(scope="module")
def tables(table):
    return Tables([table, plain.table()])


@pytest.fixture
def made(tmp_path):
    """Return a function that runs expressions and returns the objects that they make."""

    def make(texts):
        path = tmp_path / "made_values.py"
        path.write_text(f"import ttnn\n\nVALUES = {formatted(row(texts))}\n")
        spec = importlib.util.spec_from_file_location("made_values", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.VALUES

    return make


def walked(ttnn, path):
    live = ttnn
    for part in path.split(".")[1:]:
        live = getattr(live, part, None)
    return live


def test_every_class_is_found_where_its_expression_names_it(ttnn, table):
    kinds = (StructConverter, SymbolConverter)
    converters = [each for each in table.by_name.values() if isinstance(each, kinds)]
    lost = [
        each.name
        for each in converters
        if walked(ttnn, class_path(each.name, "$")) is not each.type
    ]
    assert lost == []
    assert len(converters) > 80


def test_every_configuration_is_made_again_by_its_text(ttnn, table, tables, made):
    samples = Samples(ttnn, values.find(ttnn), table)
    converters = [each for each in table.by_name.values() if isinstance(each, StructConverter)]
    wanted = [
        describe(live, tables)
        for each in converters
        if each.name not in NO_CONSTRUCTOR
        for live in samples.of_class(each.type)
    ]
    found = made([expression_of(value) for value in wanted])
    assert [describe(live, tables) for live in found] == wanted
    assert len(wanted) > 100


def test_only_classes_that_ttnn_has_are_said_to_lack_a_constructor(table):
    assert table.by_name.keys() >= NO_CONSTRUCTOR


def test_memory_of_every_sharding_is_made_again_by_its_text(ttnn, tables, made):
    wanted = [describe(live, tables) for live in sharded_memories(ttnn)]
    assert [describe(live, tables) for live in made(map(expression_of, wanted))] == wanted


def test_indices_are_made_again_by_their_text(tables, made):
    wanted = describe((..., slice(None), slice(0, 128), slice(None, None, 2), range(3)), tables)
    assert [describe(live, tables) for live in made([expression_of(wanted)])] == [wanted]


def test_parameters_that_are_passed_by_place_come_first_in_signatures(ttnn):
    targets = Targets(ttnn)
    others = set()
    names = {each.python_fully_qualified_name for each in ttnn.query_registered_operations()}
    for op in sorted(name for name in names if place_of_file(Case(name, ())) is None):
        for known, by_place in _signatures(targets.find(op)):
            leading = leading_of(known)
            if by_place[: len(leading)] != leading:
                others.add(op)
    assert others == ops_with("takes_names_only") & names


def _signatures(target):
    if target.overloads:
        return [(each.names, tuple(each.positional)) for each in target.overloads]
    if target.signature is None:
        return []
    parameters = target.signature.parameters
    by_place = [
        name for name, each in parameters.items() if each.kind <= each.POSITIONAL_OR_KEYWORD
    ]
    return [(parameters.keys(), tuple(by_place))]
