"""Whatever was recorded, generating tests of it adds up and gives Python."""

import ast
import keyword
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from optrove.model.case import Case, rewrite
from optrove.model.values import Struct, Symbol, TensorSpec, TtnnPlacement
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import RecordedCase
from optrove.testgen.expressions import Bracket, flat, formatted
from optrove.testgen.files import generate
from strategies import cases, values
from strategies import names as odd_names

LAWS = settings(max_examples=150, database=None, deadline=None)

names = st.from_regex(r"[a-z]{1,12}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
expressions = st.recursive(
    names,
    lambda inner: st.builds(
        lambda head, items: Bracket(f"{head}(", tuple(items), ")"),
        names,
        st.lists(inner, max_size=6),
    ),
)


@LAWS
@given(expressions, st.integers(0, 12))
def test_laying_out_changes_nothing_but_the_lines(expression, indent):
    text = formatted(expression, indent)
    assert ast.unparse(ast.parse(text)) == ast.unparse(ast.parse(flat(expression)))


@LAWS
@given(st.lists(cases, max_size=4), st.booleans())
def test_every_case_is_in_a_file_or_left_out(found, standalone):
    known = {placement_hash(each): RecordedCase(placement_hash(each), each) for each in found}
    generated = generate(known.values(), standalone=standalone)
    assert sum(file.cases for file in generated.files) + len(generated.left_out) == len(known)
    for file in generated.files:
        ast.parse(file.text)


def of_ttnn(part):
    """Return a part with a type that is looked at more closely."""
    match part:
        case Struct(fields=fields):
            return Struct("ttnn.Odd", fields)
        case Symbol(name=name):
            return Symbol("ttnn.Layout", name)
        case TensorSpec(placement=TtnnPlacement() as placement):
            return replace(part, dtype="ttnn.bfloat16", placement=replace(placement, tile=None))
    return part


@LAWS
@given(
    st.dictionaries(names | odd_names | st.sampled_from(keyword.kwlist), values, max_size=4),
    st.booleans(),
    odd_names,
)
def test_files_are_python_whatever_names_and_notes_say(arguments, standalone, note):
    known = {name: rewrite(value, of_ttnn) for name, value in arguments.items()}
    case = Case("ttnn.add", tuple(known.items()))
    recorded = RecordedCase(placement_hash(case), case, notes=(note,))
    generated = generate([recorded], standalone=standalone)
    for file in generated.files:
        tree = ast.parse(file.text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert len(imports) <= 9
    assert len(generated.files) + len(generated.left_out) == 1
