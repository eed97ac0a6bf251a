"""The SQL that lets some read a trove on a PostgreSQL server, and others write to it.

A reader may ask for all that is there. A writer may also add and remove Runs, but cannot change or
drop a table, nor what the trove says about itself. Only the owner of the tables can bring a trove
to a new version; after that new tables need their rights, so the same SQL is run again.
"""

from __future__ import annotations

import re
from typing import Final

from optrove.errors import BadSetting
from optrove.store.schema import METADATA, TROVE
from optrove.store.views import VIEWS

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")

_SCRIPT: Final = """\
-- The roles {reader} and {writer} of an optrove trove. Run this as the owner of its tables who may
-- create roles, in the database and with the search_path of the trove; again after an upgrade.
BEGIN;
DO $$ BEGIN
  IF to_regrole('{reader}') IS NULL THEN CREATE ROLE {reader} NOLOGIN; END IF;
  IF to_regrole('{writer}') IS NULL THEN CREATE ROLE {writer} NOLOGIN; END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO {reader}, {writer}', current_schema());
END $$;
GRANT SELECT ON {tables}
  TO {reader}, {writer};
GRANT INSERT, UPDATE, DELETE ON {changed}
  TO {writer};
{views}
COMMIT;
"""
_VIEW: Final = """\
DO $$ BEGIN IF to_regclass('{view}') IS NOT NULL THEN
  GRANT SELECT ON {view} TO {reader}, {writer}; END IF; END $$;"""


def grants(reader: str, writer: str) -> str:
    """Return the SQL that makes the two roles, where they are not there, and gives them rights.

    It can be run again. BadSetting for a name that would not do in SQL as it is.
    """
    names = {"reader": _quoted(reader), "writer": _quoted(writer)}
    tables = [table.name for table in METADATA.sorted_tables]
    return _SCRIPT.format(
        **names,
        tables=", ".join(tables),
        changed=", ".join(name for name in tables if name != TROVE.name),
        views="\n".join(_VIEW.format(view=view.name, **names) for view in VIEWS),
    )


def _quoted(role: str) -> str:
    if not _NAME.fullmatch(role):
        raise BadSetting(
            f"{role!r} cannot be the name of a role here; "
            f"use letters, digits, _ and -, a letter first, and at most 63 of them"
        )
    return f'"{role}"'
