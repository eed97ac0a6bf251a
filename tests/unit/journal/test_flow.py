"""The flow of tensors in a journal: written in C and in Python, read after any end, packed."""

import gc
import zlib
from array import array

import pytest

from optrove.errors import BadData
from optrove.frameworks.extensions import load_extension
from optrove.journal import calls
from optrove.journal.calls import Dictionary, pack_flow, unpack_flow
from optrove.journal.flow import FLOW_MAGIC, PythonStream, flow_beside, read_entries
from optrove.journal.format import HEADER_SIZE
from optrove.model.flow import BUFFER, FREED, INPUT, OUTPUT, FlowCall, FlowEntry, flow_of
from parts import C_EXTENSION, leave_out


class Tensor:
    """A tensor that takes weak references."""

    def __init__(self, buffer):
        self.buffer = buffer


@pytest.fixture(params=["in C", "in Python"])
def stream_kind(request):
    if request.param == "in Python":
        return PythonStream
    extension = load_extension("_torch_fast_path")
    if extension is None:
        leave_out(C_EXTENSION, "it was not built")
    return extension.Stream


class Written:
    """A stream into windows in memory, and the entries that it wrote."""

    def __init__(self, kind, entries=4):
        self.windows = []
        self.full = False
        self.size = 16 * entries
        self.stream = kind(
            next_window=self._next,
            number_of=None,
            buffer_of=lambda live: live.buffer,
            first=100,
            weak=True,
        )

    def _next(self):
        if self.full:
            raise OSError(28, "no space left")
        self.windows.append(bytearray(self.size))
        return self.windows[-1]

    def entries(self, directory):
        lines = directory / "1-2.lines"
        content = FLOW_MAGIC.ljust(HEADER_SIZE, b"\0") + b"".join(self.windows)
        flow_beside(lines).write_bytes(content)
        return list(read_entries(lines))


def order(*identities):
    return array("H", identities).tobytes()


def test_tensors_are_followed_from_call_to_call_until_they_are_freed(stream_kind, tmp_path):
    written = Written(stream_kind)
    first, second = Tensor(7), Tensor(7)
    written.stream.enter(0, order(1, 0), (first, second))
    result = Tensor(None)
    written.stream.leave(0, (result,))
    written.stream.enter(1, order(0), (result,))
    del second
    gc.collect()
    written.stream.enter(2, order(0), (first,))
    flow = flow_of(written.entries(tmp_path))
    assert flow.calls == {
        0: FlowCall({1: 101, 0: 102}, {0: 103}),
        1: FlowCall({0: 103}, {}),
        2: FlowCall({0: 101}, {}),
    }
    assert flow.buffers[101] == flow.buffers[102]
    assert 103 not in flow.buffers
    assert flow.freed == {1: (102,)}
    assert len(written.windows) > 1


def test_a_full_disk_costs_entries_which_are_counted(stream_kind, tmp_path):
    written = Written(stream_kind, entries=2)
    first = Tensor(None)
    written.stream.enter(0, order(0, 0), (first, first))
    written.full = True
    written.stream.enter(1, order(0), (first,))
    assert written.stream.lost == 1
    assert [entry.op_index for entry in written.entries(tmp_path)] == [0, 0]


def test_a_stream_that_restarts_or_is_closed_forgets_all_tensors(stream_kind, tmp_path):
    written = Written(stream_kind)
    tensor = Tensor(3)
    written.stream.enter(0, order(0), (tensor,))
    later = Written(stream_kind)
    written.stream.restart(later._next)
    written.stream.enter(0, order(0), (tensor,))
    kinds = [entry.kind for entry in later.entries(tmp_path)]
    assert kinds == [BUFFER, BUFFER, INPUT]
    written.stream.close()
    del tensor
    gc.collect()
    assert [entry.kind for entry in later.entries(tmp_path)] == kinds


def test_an_entry_that_was_not_completed_is_not_read(tmp_path):
    lines = tmp_path / "1-2.lines"
    whole = array("Q", [INPUT, 5, INPUT | 1 << 24, 0, OUTPUT, 6]).tobytes()
    flow_beside(lines).write_bytes(FLOW_MAGIC.ljust(HEADER_SIZE, b"\0") + whole + b"torn")
    assert list(read_entries(lines)) == [FlowEntry(INPUT, 0, 0, 5), FlowEntry(OUTPUT, 0, 0, 6)]


@pytest.mark.parametrize("content", [b"something else", array("Q", [99, 1]).tobytes()])
def test_a_file_of_another_format_is_refused(tmp_path, content):
    lines = tmp_path / "1-2.lines"
    header = b"" if content.startswith(b"some") else FLOW_MAGIC.ljust(HEADER_SIZE, b"\0")
    flow_beside(lines).write_bytes(header + content)
    with pytest.raises(BadData):
        list(read_entries(lines))


def test_a_buffer_number_that_is_reused_means_other_memory():
    entries = [
        FlowEntry(*each)
        for each in [
            (BUFFER, 0, 0, 1),
            (BUFFER, 1, 0, 500),
            (BUFFER, 0, 0, 2),
            (BUFFER, 1, 0, 500),
            (FREED, 0, 1, 1),
            (FREED, 0, 1, 2),
            (BUFFER, 0, 2, 3),
            (BUFFER, 1, 2, 500),
        ]
    ]
    buffers = flow_of(entries).buffers
    assert buffers[1] == buffers[2] != buffers[3]


def test_entries_survive_packing():
    entries = [
        FlowEntry(INPUT, 3, 0, 5),
        FlowEntry(OUTPUT, 0, 2**39, (1 << 48) + 7),
        FlowEntry(FREED, 0, 1, 1),
    ]
    assert list(unpack_flow(pack_flow(entries))) == entries
    assert list(unpack_flow(pack_flow([]))) == []


@pytest.mark.parametrize("text", ["not base 64!", "AAAA", ""])
def test_packed_entries_that_are_damaged_are_refused(text):
    with pytest.raises(BadData, match="flow"):
        list(unpack_flow(text))


def test_data_that_grows_beyond_all_measure_is_refused(monkeypatch):
    monkeypatch.setattr(calls, "_MAX_BYTES", 10_000)
    with pytest.raises(BadData, match="larger than 10,000 bytes when it is unpacked"):
        list(unpack_flow(pack_flow([FlowEntry(INPUT, 3, 0, 5)] * 1000)))
    with pytest.raises(BadData, match="larger than 10,000 bytes when it is unpacked"):
        Dictionary(zlib.compress(bytes(20_000)))
