"""Write what BI tools need to show a trove: its views, and a bundle for Apache Superset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import UnusableResults
from optrove.flows.stores import located, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.flows.stores import Recovered
    from optrove.store.place import Place

BUNDLE: Final = "optrove-superset.zip"
SQL: Final = "views.sql"

_HEAD: Final = """\
-- The views of an optrove trove on {dialect}, for any BI tool; docs/sharing.md lists their columns.
-- Run it again after an upgrade: it replaces views that are there.
"""


@dataclass(frozen=True, slots=True)
class BiExport:
    """The files that were written, and whether the trove has the views now."""

    sql: Path
    bundle: Path
    installed: bool


def export_bi(
    store: str | None, directory: str, tell: Callable[[Recovered], object], *, install: bool
) -> BiExport:
    """Write the views and the bundle to a directory; with ``install``, make the views, too.

    NoTrove when there is none; without ``install`` nothing in it is changed.
    """
    from optrove.interop.superset import write_bundle
    from optrove.store.reader import open_reader
    from optrove.store.views import VIEWS, view_statements

    place = located(store)
    open_reader(place).close()
    if install:
        with writing(store, tell, create=False) as trove:
            trove.make_views()
    dialect = "sqlite" if place.url is None else "postgresql"
    statements = "".join(f"{statement.strip()};\n" for statement in view_statements(dialect))
    files = {
        SQL: (_HEAD.format(dialect=dialect) + f"BEGIN;\n{statements}COMMIT;\n").encode(),
        BUNDLE: write_bundle(superset_uri(place), _name(place), VIEWS),
    }
    sql, bundle = _written(Path(directory), files)
    return BiExport(sql, bundle, installed=install)


def superset_uri(place: Place) -> str:
    """Return how Superset finds a trove, with the mask that it has for passwords."""
    from sqlalchemy.engine import URL, make_url

    if place.path is not None:
        return URL.create("sqlite", database=str(place.path.absolute())).render_as_string()
    url = make_url(str(place.url))
    masked = url if url.password is None else url.set(password="X" * 10)
    return masked.set(drivername="postgresql").render_as_string(hide_password=False)


def _name(place: Place) -> str:
    if place.path is not None:
        path = place.path.absolute()
        # The usual name tells nothing; the directory does that it is in.
        return path.parent.parent.name if path.parent.name == ".optrove" else path.stem
    return str(place.url).partition("?")[0].rpartition("/")[2]


def _written(directory: Path, files: dict[str, bytes]) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_bytes(content)
    except OSError as error:
        raise UnusableResults(
            f"{directory} cannot be written: {error}; choose another directory"
        ) from error
    return [directory / name for name in files]
