"""Reading a file imports no module that takes long to import."""

import subprocess
import sys

from small_trove import LLAMA_IMPORT, make_trove

ASK = """
import sys
from optrove.model.records import Query
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

with open_reader(place_of(sys.argv[1])) as reader:
    assert reader.ops(Query())
    rows = list(reader.cases(Query(dtype="bfloat8_b")))
    assert list(reader.executions([row.case_id for row in rows]))
    assert reader.models()
    assert reader.tensors(reader.find_case(""))
    assert list(reader.calls("x")) == []
heavy = {"rich", "psycopg", "ttnn", "torch", "numpy"}
found = heavy & set(sys.modules)
assert not found, found
"""


def test_reading_a_file_imports_neither_a_driver_nor_a_framework(tmp_path):
    path = make_trove(tmp_path / "trove.db", LLAMA_IMPORT)
    subprocess.run([sys.executable, "-c", ASK, path], check=True)
