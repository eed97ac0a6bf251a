"""The page of a run's memory: bytes of L1 and DRAM over its calls, and the tensors at the peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.report.memory import NO_FLOW, memory_data, memory_svg, run_memory
from optrove.web.page_request import Page, PageView, Parameter
from optrove.web.runs import RUN_ID, named_run
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

_MAX_CALLS: Final = 2_000
_MAX_TENSORS: Final = 100


def memory_page(request: PageRequest) -> PageView:
    """Make the page; JSON has the first calls only, and pictures have all of them."""
    run_id = named_run(request.reader, request.text("id") or "").run.id
    page: responses.MemoryPage = {
        "run_id": cut(run_id),
        "process": None,
        "calls": [],
        "peaks": {},
        "problem": None,
    }
    if not request.reader.flows(run_id):
        return PageView({**page, "problem": NO_FLOW.format(run=cut(run_id)[:12])}, {"pictures": {}})
    found = run_memory(request.reader, run_id)
    data: dict[str, Any] = memory_data(found)
    page["process"] = found.process
    page["calls"] = [_with_cut_texts(each) for each in data["calls"][:_MAX_CALLS]]
    page["peaks"] = {
        name: {
            "call": peak["call"],
            "bytes": peak["bytes"],
            "tensors": [*map(_with_cut_texts, peak["tensors"][:_MAX_TENSORS])],
        }
        for name, peak in data["peaks"].items()
    }
    return PageView(page, {"pictures": {name: memory_svg(found, name) for name in found.peaks}})


def _with_cut_texts(row: dict[str, Any]) -> Any:
    return {name: cut(each) if isinstance(each, str) else each for name, each in row.items()}


MEMORY: Final = Page(
    *("/memory", "memory", "Memory over the calls of a run, if its flow was recorded", memory_page),
    (Parameter("id", RUN_ID, required=True),),
)
