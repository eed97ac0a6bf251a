"""Read from options and environment what is to be traced, and where it goes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optrove.flows.stores import journals_beside, located

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from optrove.settings import Settings
    from optrove.store.place import Place as StorePlace

_WITH_VALUES = ("trace_params_with_values", "optrove_params_values")
# Options that say how to trace, and not that one should.
_TUNING = ("backend", "include", "exclude", "model")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a session is to trace, and what of it is wanted."""

    jsonl: Path | None
    params: bool
    params_keep: bool
    params_dir: Path | None
    values: bool
    sketch: bool
    journal: Path | None
    store: str | None
    backend: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    model: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the journals go; temporary ones are removed when all has ended in order.

    ``store`` is the trove that takes them in when the session ends.
    """

    directory: Path
    temporary: bool
    store: StorePlace | None = None


def asked_of(config: pytest.Config, settings: Settings) -> Asked | None:
    """Return what is to be traced, None for nothing; UsageError for what makes no sense."""
    options = config.known_args_namespace
    base = config.invocation_params.dir
    jsonl = settings.ops_jsonl if _given(options, "ops_jsonl") is None else options.ops_jsonl
    asked = Asked(
        jsonl=_path(base, "--ops-jsonl", jsonl),
        params=bool(_given(options, "trace_params")),
        params_keep=bool(_given(options, "trace_params_keep")),
        params_dir=_path(base, "--optrove-params-dir", _given(options, "optrove_params_dir")),
        values=any(map(partial(_given, options), _WITH_VALUES)),
        sketch=bool(_given(options, "optrove_sketch")),
        journal=_path(base, "--optrove-journal", _given(options, "optrove_journal")),
        store=_given(options, "optrove_store"),
        backend=_given(options, "optrove_backend") or "auto",
        include=_split(_given(options, "optrove_include")),
        exclude=_split(_given(options, "optrove_exclude")),
        model=_given(options, "optrove_model"),
    )
    _check(asked, options)
    return asked if _traces(asked) else None


def place_of(asked: Asked, run_id: str) -> Place:
    """Return where the journals of a session go; the same in all of its processes."""
    if asked.journal is not None:
        return Place(asked.journal, temporary=False)
    if asked.store is not None:
        store = located(asked.store)
        return Place(journals_beside(store) / run_id, temporary=False, store=store)
    if asked.jsonl is not None:
        beside = asked.jsonl.with_name(asked.jsonl.name + ".journal")
        return Place(beside / run_id, temporary=True)
    return Place(Path(tempfile.gettempdir()) / f"optrove-{run_id}", temporary=True)


def _traces(asked: Asked) -> bool:
    places = (asked.jsonl, asked.journal, asked.store, asked.params_dir)
    return asked.params or any(place is not None for place in places)


def _check(asked: Asked, options: Namespace) -> None:
    for name in ("with_values", "keep"):
        if _given(options, f"trace_params_{name}") and not asked.params:
            flag = f"--trace-params-{name.replace('_', '-')}"
            raise pytest.UsageError(f"{flag} says what --trace-params writes: add --trace-params")
    if asked.store is not None and not asked.store:
        raise pytest.UsageError("--optrove-store needs a path or a URL, and got an empty one")
    tuned = [f"--optrove-{name}" for name in _TUNING if _given(options, f"optrove_{name}")]
    if tuned and not _traces(asked):
        raise pytest.UsageError(
            f"{' and '.join(tuned)} without anything to trace into: "
            f"add --ops-jsonl PATH, --trace-params or --optrove-store PATH"
        )


def _given(options: Namespace, name: str) -> Any:
    """Return the value of an option; None where somebody else has the flag, by another name."""
    return getattr(options, name, None)


def _path(base: Path, flag: str, given: str | None) -> Path | None:
    if given is None:
        return None
    if not given:
        raise pytest.UsageError(f"{flag} needs a path, and got an empty one")
    return base / Path(given).expanduser()


def _split(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of comma lists."""
    names = [name.strip() for listed in given or () for name in listed.split(",")]
    return tuple(name for name in names if name)
