"""The page about sharing promises the views as they are."""

from pathlib import Path

from optrove.trove.views import VIEWS

PAGE = Path(__file__).parents[2] / "docs" / "sharing.md"


def test_every_view_and_column_is_documented_as_it_is():
    text = PAGE.read_text()
    for view in VIEWS:
        section = text.split(f"**`{view.name}`**: ")[1].split("\n\n**")[0].split("\n## ")[0]
        assert section.lower().startswith(view.row.lower())
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        assert [row[0][3:-1] for row in rows] == [column.name for column in view.columns]
        for row, column in zip(rows, view.columns, strict=True):
            assert row[1].removesuffix(" |").endswith(column.meaning)
