"""The processes that a traced program starts through multiprocessing are recorded."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from optrove.trove.place import place_of
from optrove.trove.query import Query
from optrove.trove.reader import open_reader

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = """
import sys
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

import optrove


class Sines(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        return torch.full((3,), float(number)).sin()


def cosines(rank, count):
    x = torch.ones(2, 3)
    for _ in range(count):
        x = x.cos()


if __name__ == "__main__":
    with optrove.trace("trove.db", backend="torch") as trace:
        if sys.argv[1] == "mp.spawn":
            torch.multiprocessing.spawn(cosines, args=(5,), nprocs=2)
        else:
            loader = DataLoader(Sines(), 2, num_workers=2, multiprocessing_context=sys.argv[1])
            for batch in loader:
                batch.tan()
    print(trace.summary().processes)
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("fork", {"sin": 8, "stack": 4, "tan": 4}),
        ("forkserver", {"sin": 8, "stack": 4, "tan": 4}),
        ("mp.spawn", {"cos": 10}),
    ],
)
def test_all_calls_of_all_processes_are_in_the_trove(tmp_path, how, expected):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", how],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3"
    assert "not recorded" not in done.stderr
    assert not (tmp_path / "trove.db.journals").exists()
    with open_reader(place_of(str(tmp_path / "trove.db"))) as reader:
        calls = Counter()
        for row in reader.ops(Query()):
            calls[row.op.split(".")[3]] += row.calls
    assert {op: calls[op] for op in expected} == expected
