"""The pages of all models, and of one: its ops, its runs, and the boards that it was called on."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from optrove.trove.derived import NONE
from optrove.trove.facets import FacetFilters
from optrove.trove.query import ambiguous, models_meant, unknown
from optrove.web.ops import cut_op, matches, op_rows
from optrove.web.page_request import MAX_CHARS, PAGE_ROWS, Page, PageView, Parameter, rows_after
from optrove.web.runs import run_data
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.model.trove import ModelRuns
    from optrove.trove.facets import CaseGroups
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

_MAX_RUNS: Final = 10
_MAX_BOARDS: Final = 20
_MAX_NAME_CHARS: Final = 200


def origins(groups: CaseGroups, name: str) -> list[tuple[str, responses.Origin]]:
    """Return the models, or the boards, with their ops, cases and calls, most calls first."""
    totals = groups.called_by(name)
    totals.pop(NONE, None)
    order = sorted(totals.items(), key=lambda item: (-item[1]["calls"], item[0]))
    return [(value, _origin(counts)) for value, counts in order]


def _origin(counts: Counter[str]) -> responses.Origin:
    return {"ops": counts["ops"], "cases": counts["cases"], "calls": counts["calls"]}


def models_page(request: PageRequest) -> PageView:
    """Make the page of models."""
    search = request.text("search")
    runs = request.reader.model_runs()
    rows = _models(request.groups, runs)
    if search is not None:
        rows = [row for row in rows if matches(row[0], search)]
    page, following = rows_after(rows, request.text("after"), "model", itemgetter(0))
    response: responses.ModelsPage = {
        "search": search,
        "total": len(rows),
        "models": [_row(*row, runs.get(row[0])) for row in page],
        "next": following,
    }
    return PageView(response)


def _models(
    groups: CaseGroups, runs: Mapping[str, ModelRuns]
) -> list[tuple[str, responses.Origin]]:
    """Return all models; those without calls that lists show come last."""
    called = origins(groups, "model")
    silent = sorted(runs.keys() - {name for name, _ in called})
    return [*called, *((name, _origin(Counter())) for name in silent)]


def _row(model: str, origin: responses.Origin, runs: ModelRuns | None) -> responses.ModelRow:
    boards = () if runs is None else runs.boards
    return {
        **origin,
        "model": cut(model),
        "runs": 0 if runs is None else runs.runs,
        "last_run_at": None if runs is None else runs.last_run_at,
        "boards": [cut(board) for board in boards[:_MAX_BOARDS]],
    }


def model_page(request: PageRequest) -> PageView:
    """Make the page of one model."""
    groups, runs = request.groups, request.reader.model_runs()
    rows = dict(_models(groups, runs))
    name = _meant(request.text("name") or "", rows)
    ops = op_rows(request, groups.shown(), FacetFilters(model=name))
    listed = request.reader.runs(chosen={"model": name}, limit=_MAX_RUNS + 1)
    response: responses.ModelPage = {
        **_row(name, rows[name], runs.get(name)),
        "ops_listed": [cut_op(row) for row in ops[:PAGE_ROWS]],
        "more_ops": len(ops) > PAGE_ROWS,
        "runs_listed": [run_data(row) for row in listed[:_MAX_RUNS]],
        "more_runs": len(listed) > _MAX_RUNS,
    }
    return PageView(response)


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the model of this name, or the only one with it in its name; NotFound otherwise."""
    short = [each for each in known if len(each) <= MAX_CHARS]
    found = models_meant(name, short)
    if len(found) == 1:
        return found[0]
    asked = name[:_MAX_NAME_CHARS]
    if found:
        problem = f"{len(found):,} models have {asked!r} in their names"
        raise ambiguous(problem, [each[:_MAX_NAME_CHARS] for each in found], "give more of it")
    near = [each for each in short if len(each) <= _MAX_NAME_CHARS]
    raise unknown(f"no model here is called {asked!r}", name, near, "/models")


MODELS: Final = Page(
    *("/models", "models", "All models, most called first", models_page),
    (
        Parameter("search", "part of the name of a model", may_be_empty=True),
        Parameter("after", "the last model of the previous page"),
    ),
)
MODEL: Final = Page(
    *("/model", "model", "One model: its ops and runs", model_page),
    (Parameter("name", "the model, or the source of its runs; a part is enough", required=True),),
)
