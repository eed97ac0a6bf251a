import csv
import threading

import pytest

from optrove.errors import UnusableResults
from optrove.pytest_plugin.results import ResultsFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.csv"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def file_at(path):
    file = ResultsFile(path, ("name", "text"))
    file.prepare()
    return file


def test_the_header_is_written_once(path):
    file_at(path)
    file_at(path).append({"name": "a", "text": "b"})
    assert path.read_bytes() == b"name,text\na,b\n"


def test_an_empty_file_gets_a_header(path):
    path.write_bytes(b"")
    file = file_at(path)
    path.write_bytes(b"")
    file.append({"name": "a"})
    assert rows(path) == [["name", "text"], ["a", ""]]


def test_a_header_that_was_not_finished_is_finished(path):
    path.write_bytes(b"name,te")
    file_at(path)
    assert path.read_bytes() == b"name,text\n"


@pytest.mark.parametrize("text", [b"name,other\n", b"x", b"name,text,more\n", b"name,te\n", b"\n"])
def test_other_columns_are_refused_and_left_alone(path, text):
    path.write_bytes(text)
    with pytest.raises(UnusableResults, match="does not have the columns"):
        file_at(path)
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    ("torn", "read"),
    [
        (b"a,half", ["a", "half"]),
        (b"a", ["a"]),
        (b'a,"half, with ""quotes""', ["a", 'half, with "quotes"']),
        (b'a,"' + b"x" * 200_000, ["a", "x" * 200_000]),
    ],
)
def test_a_torn_line_ends_before_the_next_row(path, torn, read, monkeypatch):
    csv.field_size_limit(1_000_000)
    file = file_at(path)
    file.append({"name": "whole", "text": ""})
    with path.open("ab") as torn_file:
        torn_file.write(torn)
    file.append({"name": "next", "text": "1"})
    assert rows(path) == [["name", "text"], ["whole", ""], read, ["next", "1"]]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ('quotes "and", commas', 'quotes "and", commas'),
        ("tab\tstays", "tab\tstays"),
        ("nul\x00 and colour\x1b[31m", r"nul\x00 and colour\x1b[31m"),
        ("lone \udc80 surrogate", r"lone \udc80 surrogate"),
        ("line\u2028separator", r"line\u2028separator"),
        ("grün", "grün"),
    ],
)
def test_any_text_is_one_line(path, text, read):
    file = file_at(path)
    file.append({"name": text, "text": "b"})
    assert rows(path) == [["name", "text"], [read, "b"]]
    assert len(path.read_text().splitlines()) == 2


def test_writers_at_once_do_not_mix_their_rows(path):
    def write(number):
        file = file_at(path)
        for count in range(50):
            file.append({"name": f"{number}-{count}", "text": "x" * 5000})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    header, *found = rows(path)
    assert header == ["name", "text"]
    assert len({name for name, _ in found}) == len(found) == 200
