"""Cases are counted and listed by their facets as looking at every case would do it."""

import random
from dataclasses import asdict, replace
from itertools import islice

import pytest

from optrove.model.records import DeviceKind, Outcome, RunKind
from optrove.trove.derived import NONE
from optrove.trove.facets import (
    FACETS,
    CaseGroups,
    CaseList,
    FacetFilters,
    listed_case,
    tried_cases,
)
from optrove.trove.reader import open_reader
from trove_rows import case, tensor
from troves import ENVIRONMENT, attempt_of, imported, run_of

OPS = ("ttnn.add", "ttnn.matmul")
DTYPES = ("bfloat16", "bfloat8_b")
VALUES = {
    "model": (None, "one/Model", "other/Model"),
    "board": (None, "n150", NONE),
    "dtype": (None, *DTYPES),
    "layout": (None, "TILE"),
    "memory": (None, "DRAM_INTERLEAVED", "HOST"),
    "mesh": (None, "1x1", NONE),
    "outcome": (None, NONE, "passed", "raised"),
}


@pytest.fixture
def known(trove):
    """A trove with cases of all sorts, and by case id all that the test knows of them."""
    chance = random.Random(1)  # noqa: S311 - no secret
    cases = [
        case(
            chance.choice(OPS),
            a=tensor(32 * size, 32, dtype=chance.choice(DTYPES)),
            b=chance.choice([tensor(32, 32, dtype=chance.choice(DTYPES)), 1.5]),
            c=size % 3,
        )
        for size in range(1, 25)
    ]
    for model in VALUES["model"][1:]:
        for board in ("n150", None):
            some = [(each, chance.randrange(1, 9)) for each in chance.sample(cases, 12)]
            environment = ENVIRONMENT.__class__("0.1", "3.12", "linux", board=board)
            run = f"{model} {board}"
            trove.add_imported(imported(run, *some, model=model, environment=environment))
    with trove.reader() as reader:
        ids = [row.case_id for row in reader.cases_by_id(_ids(reader))]
        run = run_of("replay", kind=RunKind.REPLAY)
        trove.add_attempts(
            run,
            [
                attempt_of(
                    each, run.id, chance.choice([Outcome.PASSED, Outcome.RAISED]), board=board
                )
                for each in chance.sample(ids, 12)
                for board in ("n150", "n300")
            ],
        )
    return trove


def _ids(reader):
    return [case_id for (case_id,) in reader.connection.fetch("SELECT case_id FROM cases")]


def looked_at(reader):
    """Return by case id: op, family, tensors, calls by origin and last outcome, row by row."""
    ids = _ids(reader)
    tensors = reader.tensors(ids)
    found = {
        row.case_id: {
            "op": row.op,
            "family": row.family_id,
            "tensors": {
                (each.dtype, each.layout, each.memory, each.mesh or NONE)
                for each in tensors[row.case_id]
            },
            "calls": {},
            "outcome": NONE,
        }
        for row in reader.cases_by_id(ids)
    }
    for row in reader.executions(ids):
        calls = found[row.case_id]["calls"]
        origin = row.model, row.board or NONE
        calls[origin] = calls.get(origin, 0) + row.count
    for case_id, each in found.items():
        last = reader.case_attempts(case_id, None, 1)
        if last:
            each["outcome"] = last[0][1].outcome.value
    return found


def counted(each, choice):
    return sum(
        calls
        for (model, board), calls in each["calls"].items()
        if choice.model in (None, model) and choice.board in (None, board)
    )


def fits(each, choice):
    wanted = (choice.dtype, choice.layout, choice.memory, choice.mesh)
    return (
        (
            wanted == (None,) * 4
            or any(
                all(want in (None, fact) for want, fact in zip(wanted, facts, strict=True))
                for facts in each["tensors"]
            )
        )
        and counted(each, choice) > 0
        and choice.outcome in (None, each["outcome"])
    )


def test_groups_count_and_list_as_looking_at_every_case_does(known, place):
    chance = random.Random(2)  # noqa: S311 - no secret
    with open_reader(place) as reader:
        groups, every = CaseGroups(reader), looked_at(reader)
        for _ in range(40):
            choice = FacetFilters(
                **{name: chance.choice(values) for name, values in VALUES.items()}
            )
            op = chance.choice(OPS)
            cases = CaseList(reader, groups, op, choice, nested=False)
            expected = [
                case_id
                for case_id, each in every.items()
                if each["op"] == op and fits(each, choice)
            ]
            chosen = groups.chosen(op, choice)
            assert sum(group.cases for group in chosen) == len(expected)
            totals = {each: sum(every[each]["calls"].values()) for each in expected}
            order = sorted(expected, key=lambda each: (-totals[each], each))
            assert [each.case_id for each in _paged(cases.page)] == order
            calls = {each: counted(every[each], choice) for each in expected}
            listed = cases.page(None, 100)
            by_key = cases.calls([each.key for each in listed])
            assert {each.case_id: by_key[each.key] for each in listed} == calls
            assert cases.total_calls() == sum(calls.values())
            families = list(_paged(cases.families, lambda family: family.members[0]))
            assert sum(family.cases for family in families) == len(expected)
            assert sum(family.calls for family in families) == sum(totals.values())
            assert {each.case_id for family in families for each in family.members} <= set(expected)
            for name, values in groups.facets([op], choice).items():
                for value, count in values.items():
                    facts = {facet: getattr(choice, facet) for facet in FACETS}
                    narrowed = groups.chosen(op, FacetFilters(**{**facts, name: value}))
                    assert count == sum(group.cases for group in narrowed) > 0


def test_filters_match_without_case_and_memory_by_its_parts(known, place):
    exact = FacetFilters(model="one/Model", board="n150", dtype="bfloat16", layout="TILE")
    with open_reader(place) as reader:
        groups = CaseGroups(reader)
        memory = {"memory": "DRAM_INTERLEAVED"}
        loose = {name: value.upper() for name, value in asdict(exact).items() if value}
        for op in OPS:
            expected = CaseList(reader, groups, op, replace(exact, **memory), nested=False)
            found = CaseList(
                reader, groups, op, FacetFilters(**loose, memory="interleaved"), nested=False
            )
            assert found.page(None, 100) == expected.page(None, 100) != []
            assert found.total_calls() == expected.total_calls() > 0
            assert groups.calls(op, FacetFilters(model="ONE/MODEL")) == groups.calls(
                op, FacetFilters(model="one/Model")
            )
        assert groups.chosen(OPS[0], FacetFilters(memory="INTERLEAV")) == []


def _paged(page, case_of=lambda each: each):
    """Yield the rows of a list, three at a time."""
    after = None
    while rows := page(after, 3):
        yield from rows
        after = case_of(rows[-1])


def test_ops_are_counted_by_model_and_board(known, place):
    with open_reader(place) as reader:
        groups, every = CaseGroups(reader), looked_at(reader)
        for name, number in (("model", 0), ("board", 1)):
            for value, totals in groups.called_by(name).items():
                own = [
                    {
                        origin: count
                        for origin, count in each["calls"].items()
                        if origin[number] == value
                    }
                    for each in every.values()
                ]
                assert totals["cases"] == sum(map(bool, own))
                assert totals["calls"] == sum(sum(each.values()) for each in own)
                assert totals["ops"] == len(OPS)


def test_cases_are_listed_by_the_last_attempt_on_a_board(known, place):
    with open_reader(place) as reader:
        asked = {"board": "n300", "device": DeviceKind.MOCK.value, "outcome": "passed"}
        for op in OPS:
            found = list(_paged(lambda after, most: tried_cases(reader, op, asked, after, most)))  # noqa: B023 - at once
            last = reader.last_attempts_at(_ids(reader))
            expected = {
                case_id
                for (case_id, board, _), attempt in last.items()
                if board == "n300" and attempt.outcome is Outcome.PASSED
            }
            assert {each.case_id for each in found} == {
                each for each in expected if listed_case(reader, each)[0] == op
            }
        assert all(count for *_, count in reader.last_attempts())
        assert len(list(islice(last, 5))) == 5
