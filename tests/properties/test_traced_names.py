import contextlib

from hypothesis import given
from hypothesis import strategies as st

from optrove.errors import NotFound
from optrove.sweep.traced import TracedConfiguration, TracedTensor, read_name, write_name
from strategies import structs_of, values
from trove_rows import memory, shard

sizes = st.lists(st.integers(0, 2**40), max_size=5).map(tuple)
pairs = st.tuples(st.integers(1, 64), st.integers(1, 64))
corners = st.tuples(st.integers(0, 12), st.integers(0, 12))
usual = st.builds(
    memory,
    st.sampled_from(["DRAM_INTERLEAVED", "L1_WIDTH_SHARDED", "L1_SMALL_BLOCK_SHARDED"]),
    st.none() | st.builds(shard, pairs, corners),
)
odd = structs_of(values).map(lambda struct: type(struct)("ttnn.MemoryConfig", struct.fields))
memories = usual | odd
tensors = st.builds(
    TracedTensor,
    shape=sizes,
    dtype=st.sampled_from(["ttnn.bfloat16", "ttnn.uint8", "torch.float32"]),
    layout=st.sampled_from(["TILE", "ROW_MAJOR"]),
    tile=st.none() | pairs,
    memory=st.none() | memories,
    mesh=st.none() | sizes.filter(len),
)
traced = st.builds(
    TracedConfiguration,
    op=st.sampled_from(["ttnn.add", "ttnn.experimental.x_1"]),
    tensors=st.lists(tensors, min_size=1, max_size=3).map(tuple),
    output=st.none() | memories,
)


@given(traced)
def test_a_name_leads_back_to_its_configuration(one):
    assert read_name(write_name(one)) == one


@given(st.text(max_size=80) | traced.map(write_name).map(lambda name: name[:-2]))
def test_any_other_text_is_refused_or_understood(text):
    with contextlib.suppress(NotFound):
        assert write_name(read_name(text))
