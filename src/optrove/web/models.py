"""The pages of all models, and of one: its ops, its runs, and the boards that it was called on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.report.facets import NONE, Choice
from optrove.trove import browsing_runs
from optrove.trove.query import ambiguous, models_meant, unknown
from optrove.web.ops import cut_op, matches, op_data
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import LONGEST, Parameter
from optrove.web.runs import EXECUTED, run_rows
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.trove.browsing import RunFact
    from optrove.web import responses
    from optrove.web.catalog import Index
    from optrove.web.page_request import PageRequest

_SHOWN: Final = 10
_MOST_BOARDS: Final = 20
_LONGEST_NAME: Final = 200


def origins(index: Index, name: str) -> list[tuple[str, responses.Origin]]:
    """Return the models, or the boards, with their ops, cases and calls, most calls first."""
    totals: dict[str, Counter[str]] = {}
    for op in index.shown(all_ops=False):
        for value, (cases, calls) in op.cases.called_by(name).items():
            counts = totals.setdefault(value, Counter())
            counts.update(ops=int(bool(cases)), cases=cases.bit_count(), calls=calls)
    totals.pop(NONE, None)
    order = sorted(totals.items(), key=lambda item: (-item[1]["calls"], item[0]))
    return [(value, _origin(counts)) for value, counts in order]


def _origin(counts: Counter[str]) -> responses.Origin:
    return {"ops": counts["ops"], "cases": counts["cases"], "calls": counts["calls"]}


def models_page(request: PageRequest) -> View:
    """Make the page of models."""
    search = request.text("search")
    rows = _models(request.index)
    if search is not None:
        rows = [row for row in rows if matches(row[0], search)]
    after, begin = request.text("after"), 0
    if after is not None:
        begin = next((n for n, row in enumerate(rows, 1) if row[0][:LONGEST] == after), 0)
        if not begin:
            raise not_listed("model", after)
    page = rows[begin : begin + PAGE_ROWS]
    runs = _runs_by_model(request.index)
    more = begin + PAGE_ROWS < len(rows)
    response: responses.ModelsPage = {
        "search": search,
        "total": len(rows),
        "models": [_row(*row, runs.get(row[0], [])) for row in page],
        "next": page[-1][0][:LONGEST] if more else None,
    }
    return View(response)


def _models(index: Index) -> list[tuple[str, responses.Origin]]:
    """Return all models; those without calls that lists show come last."""
    called = origins(index, "model")
    silent = sorted(_runs_by_model(index).keys() - {name for name, _ in called})
    return [*called, *((name, _origin(Counter())) for name in silent)]


def _runs_by_model(index: Index) -> dict[str, list[RunFact]]:
    found: dict[str, list[RunFact]] = {}
    for fact in index.runs.values():
        if fact.kind not in EXECUTED:
            found.setdefault(fact.model, []).append(fact)
    return found


def _row(model: str, origin: responses.Origin, runs: list[RunFact]) -> responses.ModelRow:
    boards = sorted({fact.board for fact in runs if fact.board is not None})
    return {
        **origin,
        "model": cut(model),
        "runs": len(runs),
        "last_run_at": max((fact.started_at for fact in runs), default=None),
        "boards": [cut(board) for board in boards[:_MOST_BOARDS]],
    }


def model_page(request: PageRequest) -> View:
    """Make the page of one model."""
    index = request.index
    rows = dict(_models(index))
    name = _meant(request.text("name") or "", rows)
    choice = Choice(model=name)
    ops = [op_data(op, choice) for op in index.shown(all_ops=False)]
    ops = sorted((row for row in ops if row["cases"]), key=lambda row: (-row["calls"], row["op"]))
    runs = browsing_runs.runs(request.source, _SHOWN + 1, model=name)
    response: responses.ModelPage = {
        **_row(name, rows[name], _runs_by_model(index).get(name, [])),
        "ops_listed": [cut_op(row) for row in ops[:PAGE_ROWS]],
        "more_ops": len(ops) > PAGE_ROWS,
        "runs_listed": run_rows(request, runs[:_SHOWN]),
        "more_runs": len(runs) > _SHOWN,
    }
    return View(response)


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the model of this name, or the only one with it in its name; NotFound otherwise."""
    short = [each for each in known if len(each) <= LONGEST]
    found = models_meant(name, short)
    if len(found) == 1:
        return found[0]
    asked = name[:_LONGEST_NAME]
    if found:
        problem = f"{len(found):,} models have {asked!r} in their names"
        raise ambiguous(problem, [each[:_LONGEST_NAME] for each in found], "give more of it")
    near = [each for each in short if len(each) <= _LONGEST_NAME]
    raise unknown(f"no model here is called {asked!r}", name, near, "/models")


MODELS: Final = Page(
    *("/models", "models", "All models, most called first", models_page),
    (
        Parameter("search", "part of the name of a model", may_be_empty=True),
        Parameter("after", "the last model of the page before"),
    ),
)
MODEL: Final = Page(
    *("/model", "model", "One model: its ops and runs", model_page),
    (
        Parameter(
            "name", "the model, or else the source of its runs, or a part of it", required=True
        ),
    ),
)
