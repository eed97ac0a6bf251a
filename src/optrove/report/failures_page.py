"""Show why cases failed: the words of ttnn, the arguments, the shards, and how to do it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.model.records import Outcome
from optrove.model.values import TensorSpec
from optrove.model.walk import walk
from optrove.report.attempted import BACKTRACE, said
from optrove.report.causes import UNSAID
from optrove.report.commands import again_command
from optrove.report.describe import drawn_arguments
from optrove.report.page import BAD, IDLE, Failure
from optrove.report.results_text import WORDS
from optrove.report.runs_text import SHORT_ID
from optrove.report.shard_picture import shard_svg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.case import Case
    from optrove.report.causes import Cause
    from optrove.report.results import Result, RunResults

_WIDTH: Final = 96
"""How ttnn begins what only those who build it want to see."""
_LONGEST_WORDS: Final = 4_000
_LONGEST_ARGUMENTS: Final = 8_000
_MOST_CASES: Final = 12
_MOST_OPS: Final = 8
_MOST_PICTURES: Final = 3
_LARGEST_PICTURE: Final = 60_000
_ALL_PICTURES: Final = 1_000_000
"""How many letters pictures may have, one and all together: a report is to be sent."""


def failures(
    groups: Sequence[Sequence[Cause[Result]]], found: RunResults, store: str | None
) -> tuple[Failure, ...]:
    """Return why cases failed, one for each group of causes that say the same of several ops."""
    shown, left = [], _ALL_PICTURES
    for group in groups:
        example = max((each.example for each in group), key=lambda one: one.calls)
        case = case_of(example.content)
        pictures = tuple(_pictures(case, left))
        left -= sum(len(svg) for _, svg in pictures)
        first = group[0]
        words, backtrace = _words(example)
        ids = [case_id for each in group for case_id in each.case_ids]
        shown.append(
            Failure(
                count=len(ids),
                verdict=WORDS[first.outcome.value],
                kind=IDLE if first.outcome is Outcome.NOT_RUN else BAD,
                text=said(example.attempt).cause or UNSAID,
                ops=tuple((each.op, each.count) for each in group[:_MOST_OPS]),
                calls=sum(each.calls for each in group),
                example=example.attempt.case_id[:SHORT_ID],
                command=again_command(example.op, example.attempt, found.modules, store),
                words=words,
                backtrace=backtrace,
                arguments=_cut("\n".join(drawn_arguments(case, _WIDTH)), _LONGEST_ARGUMENTS),
                cases=tuple(one[:SHORT_ID] for one in ids[:_MOST_CASES]),
                more_cases=max(len(ids) - _MOST_CASES, 0),
                pictures=pictures,
            )
        )
    return tuple(shown)


def _words(result: Result) -> tuple[str, str]:
    """Return all that was said besides the cause, and apart from it the backtrace."""
    lines = [line.rstrip() for line in said(result.attempt).words]
    at = next((at for at, line in enumerate(lines) if line == BACKTRACE), len(lines))
    told, trace = "\n".join(lines[:at]).strip(), "\n".join(lines[at + 1 :])
    return _cut(told, _LONGEST_WORDS), _cut(trace, _LONGEST_WORDS)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n... ({len(text) - longest:,} more letters: optrove results --json)"


def _pictures(case: Case, left: int) -> Iterator[tuple[str, str]]:
    """Yield how the sharded tensors of a case lie on the cores, as far as there is room."""
    drawn = 0
    for name, value in case.arguments:
        for path, part in walk(value, name):
            svg = shard_svg(part) if isinstance(part, TensorSpec) else None
            if svg is None or drawn >= _MOST_PICTURES or len(svg) > min(_LARGEST_PICTURE, left):
                continue
            drawn += 1
            left -= len(svg)
            yield path, svg
