from pathlib import Path

import pytest

from optrove.errors import NotATrove
from optrove.trove.place import Place, place_of


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("trove.db", Path("trove.db")),
        ("/data/my trove.db", Path("/data/my trove.db")),
        ("sqlite:///relative.db", Path("relative.db")),
        ("sqlite:////absolute/a%20b.db", Path("/absolute/a b.db")),
        ("~/trove.db", Path("~/trove.db").expanduser()),
    ],
)
def test_a_path_is_a_file(text, path):
    place = place_of(text)
    assert (place.path, place.url) == (path, None)
    assert str(place) == str(path)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_url_is_a_server(scheme):
    place = place_of(f"{scheme}://me@host:5432/troves")
    assert (place.path, place.url) == (None, "postgresql://me@host:5432/troves")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:se:cr@et@host/db", "postgresql://me:***@host/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?password=secret", "postgresql://host/db?password=***"),
        (
            "postgresql:///db?host=/run/pg&sslpassword=secret",
            "postgresql:///db?host=/run/pg&sslpassword=***",
        ),
    ],
)
def test_a_password_is_never_shown(text, shown):
    place = place_of(text)
    assert str(place) == shown
    assert "secret" not in f"{place} {place!r} {[place]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give a path"),
        ("mysql://me@host/db", "mysql:// is not a kind of place"),
        ("sqlite://", "sqlite:///path"),
        ("sqlite:///", "sqlite:///path"),
        ("postgresql://host", "names no database"),
        ("postgresql://me:secret@host/", "names no database"),
        ("postgresql://host:port/db", "cannot be understood"),
        ("postgresql://[/db", "cannot be understood"),
    ],
)
def test_what_names_no_place_is_refused_with_advice(text, message):
    with pytest.raises(NotATrove, match=message) as caught:
        place_of(text)
    assert "secret" not in str(caught.value)


def test_a_place_is_one_thing_only():
    with pytest.raises(ValueError, match="path or at a URL"):
        Place()
    with pytest.raises(ValueError, match="path or at a URL"):
        Place(Path("a"), "postgresql://host/db")
