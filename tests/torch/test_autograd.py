"""What tracing changes in autograd, as docs/pytorch.md says: gradients are summed out of place."""

from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import optrove

pytestmark = pytest.mark.torch

STEPS = 12


def gradients():
    """Return the gradients of an RNN whose weights are used in each step."""
    torch.manual_seed(0)
    from_input, from_state = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    state = torch.zeros(4, 8)
    for row in torch.randn(STEPS, 4, 8):
        state = torch.tanh(from_input(row) + from_state(state))
    state.square().sum().backward()
    return [each.grad for each in (*from_input.parameters(), *from_state.parameters())]


def test_a_dispatch_mode_makes_sums_of_gradients_new_tensors(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        expected = gradients()
    alone = Counter({event.key: event.count for event in profiler.key_averages()})
    with optrove.trace(tmp_path / "trove.db", backend="torch") as trace:
        found = gradients()
    traced = Counter()
    for each in trace.summary().ops:
        traced[each.op.split(".")[3]] += each.calls
    assert all(map(torch.equal, expected, found))
    assert alone["aten::add_"] >= 4 * (STEPS - 2)
    assert traced["add_"] == 0
    assert traced["add"] == alone["aten::add"] + alone["aten::add_"]
    for op in ("mm", "addmm", "sum", "tanh"):
        assert traced[op] == alone[f"aten::{op}"]
