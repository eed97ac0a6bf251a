"""Test the small Llama as a model's own test would: open a mesh, serve all users, compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llama_loading
import llama_model
import llama_weights as example
import numpy as np
import pytest
import ttnn

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED_PCC = {ttnn.bfloat16: 0.9998, ttnn.bfloat8_b: 0.9995}


@dataclass(frozen=True, slots=True)
class Served:
    """The logits of a whole run: after each prompt, and after each token that follows."""

    dtype: Any
    prompts: tuple[Any, ...]
    steps: tuple[Any, ...]


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    """Open two chips of the machine with the fabric between them, or the one it has."""
    if ttnn.get_num_devices() == 1:
        opened = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        yield opened
        ttnn.close_mesh_device(opened)
        return
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    # With a fabric, ttnn opens all chips of a machine or none.
    opened = ttnn.open_mesh_device(ttnn.MeshShape(1, ttnn.get_num_devices()))
    yield opened if ttnn.get_num_devices() == 2 else opened.create_submesh(ttnn.MeshShape(1, 2))
    ttnn.close_mesh_device(opened)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.fixture(scope="module", params=EXPECTED_PCC, ids=lambda dtype: dtype.name.lower())
def served(mesh: Any, request: Any) -> Served:
    """Read every prompt, then go on token by token with all users."""
    parameters = llama_loading.load(example.make_weights(), mesh, request.param)
    tokens, lengths = example.make_tokens(), np.array(example.PROMPTS)
    prompts = tuple(
        llama_model.prefill(parameters, said[:length], user)
        for user, (said, length) in enumerate(zip(tokens, lengths, strict=True))
    )
    steps = tuple(
        llama_model.decode(
            parameters,
            np.array([said[at] for said, at in zip(tokens, lengths + step, strict=True)]),
            lengths + step,
        )
        for step in range(example.STEPS)
    )
    return Served(request.param, prompts, steps)


@pytest.fixture(scope="module")
def torch_on_a_device_that_computes(mesh: Any) -> Any:
    """Return torch; skip on a mock device that validates calls and runs no kernel.

    Real hardware is never skipped: if it cannot add, the comparison below has to fail.
    """
    torch = pytest.importorskip("torch", reason="the reference needs torch: no PCC was computed")
    ones = ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    mocked = "TT_METAL_MOCK_CLUSTER_DESC_PATH" in os.environ  # noqa: TID251 - tt-metal's own switch
    first = ttnn.get_device_tensors(ttnn.add(ones, ones))[0]
    if mocked and not torch.all(ttnn.to_torch(first) == 2):
        pytest.skip("1 + 1 is not 2 on this mock device: no PCC was computed, only specs hold")
    return torch


@pytest.fixture(scope="module")
def expected(torch_on_a_device_that_computes: Any) -> list[Any]:
    """Return the logits of the reference after each token of each user."""
    import llama_reference as reference  # needs torch, which the spec test does without

    assert torch_on_a_device_that_computes
    weights = example.make_weights()
    return [reference.logits(said, weights) for said in example.make_tokens()]


def test_logits_are_split_between_the_chips(mesh: Any, served: Served) -> None:
    """All logits have the form that they should; their numbers are not looked at."""
    assert len(served.prompts) == example.USERS
    assert len(served.steps) == example.STEPS
    for logits in (*served.prompts, *served.steps):
        assert tuple(logits.shape) == (1, 1, 32, example.VOCABULARY // mesh.get_num_devices())
        assert logits.dtype == ttnn.bfloat16
        assert logits.memory_config() == ttnn.DRAM_MEMORY_CONFIG


def test_prefill_agrees_with_torch(
    mesh: Any, served: Served, expected: list[Any], record_property: Any
) -> None:
    """After each prompt the logits correlate with the float32 reference."""
    lengths = example.PROMPTS
    actual = [
        _whole(logits, mesh)[(length - 1) % 32]
        for logits, length in zip(served.prompts, lengths, strict=True)
    ]
    wanted = [logits[length - 1] for logits, length in zip(expected, lengths, strict=True)]
    _compare(served, wanted, actual, record_property)


@pytest.mark.parametrize("step", range(example.STEPS))
def test_decode_agrees_with_torch(
    mesh: Any, served: Served, expected: list[Any], step: int, record_property: Any
) -> None:
    """So do the logits after each further token, which read keys and values from the cache."""
    actual = list(_whole(served.steps[step], mesh)[: example.USERS])
    wanted = [
        logits[length + step] for logits, length in zip(expected, example.PROMPTS, strict=True)
    ]
    _compare(served, wanted, actual, record_property)


def _whole(logits: Any, mesh: Any) -> Any:
    """Return the logits of all words as rows in float32."""
    return ttnn.to_torch(logits, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=3))[0, 0].float()


def _compare(served: Served, expected: list[Any], actual: list[Any], record_property: Any) -> None:
    """Every user's logits have to agree; the worst ones are on record."""
    import llama_reference as reference  # needs torch, which the spec test does without

    worst = min(reference.pcc(*pair) for pair in zip(expected, actual, strict=True))
    record_property("pcc", worst)
    assert worst >= EXPECTED_PCC[served.dtype]
