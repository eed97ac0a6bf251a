"""Test the small DeepSeek as a model's own test would: open the mesh, serve all users, compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deepseek_weights as example
import numpy as np
import pytest
import ttnn
from deepseek_model import DeepSeek

from optrove.runconfig import create_run_configs

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = example.DeepSeekConfig()
EXPECTED_PCC = 0.9995


@dataclass(frozen=True, slots=True)
class Served:
    """The logits of a whole run: of each prompt, and after each token that follows.

    ``spoiled`` are those of the last token once more, with experts whose weights are mixed up.
    """

    prompts: tuple[Any, ...]
    steps: tuple[Any, ...]
    spoiled: Any


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    """Open the chips of a Galaxy with the fabric between them."""
    if ttnn.get_num_devices() != 32:
        pytest.skip(f"the model is for the 32 chips of a Galaxy, not for {ttnn.get_num_devices()}")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    opened = ttnn.open_mesh_device(ttnn.MeshShape(*example.MESH))
    yield opened
    ttnn.close_mesh_device(opened)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.fixture(scope="module")
def served(mesh: Any, tmp_path_factory: Any) -> Served:
    """Convert the weights, read all prompts, then go on token by token with all users."""
    files = DeepSeek.convert_weights(
        CONFIG, example.make_state_dict(CONFIG), tmp_path_factory.mktemp("weights"), mesh
    )
    models = {
        "prefill": DeepSeek.prefill_model_config(CONFIG, mesh),
        "decode": DeepSeek.decode_model_config(CONFIG, mesh),
    }
    cfg = create_run_configs(models, files, mesh)
    model = DeepSeek(CONFIG, mesh)
    tokens, lengths = example.make_tokens(CONFIG), np.array(example.LENGTHS)
    prompts = tuple(
        model.prefill([words[: -example.STEPS] for words in said], taken, cfg["prefill"])
        for taken, said in zip(example.TAKEN, tokens, strict=True)
    )
    said_next = np.array([[words[-example.STEPS :] for words in said] for said in tokens])
    steps = tuple(
        model.decode(said_next[..., step], lengths + step, cfg["decode"])
        for step in range(example.STEPS)
    )
    experts = cfg["decode"]["layers"][1]["mlp"]["routed"]
    experts["w1"], experts["w3"] = experts["w3"], experts["w1"]
    last = example.STEPS - 1
    spoiled = model.decode(said_next[..., last], lengths + last, cfg["decode"])
    return Served(prompts, steps, spoiled)


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
def expected(torch_on_a_device_that_computes: Any) -> list[list[Any]]:
    """Return the logits of the reference after each token, by taken place and row."""
    import deepseek_reference as reference  # needs torch, which the spec test does without

    assert torch_on_a_device_that_computes
    weights = example.make_state_dict(CONFIG)
    return [
        [reference.logits(words, CONFIG, weights) for words in said]
        for said in example.make_tokens(CONFIG)
    ]


def test_logits_are_split_between_the_chips_of_a_row(served: Served) -> None:
    """All logits have the form that they should; their numbers are not looked at."""
    shapes = [tuple(logits.shape) for logits in (*served.prompts, *served.steps)]
    words = CONFIG.vocab_size // example.MESH[1]
    assert shapes == [(1, 1, 32, words)] * (len(example.TAKEN) + example.STEPS)
    assert all(logits.dtype == ttnn.bfloat16 for logits in (*served.prompts, *served.steps))


@pytest.mark.parametrize("place", range(len(example.TAKEN)))
def test_prefill_agrees_with_torch(
    mesh: Any, served: Served, expected: list[list[Any]], place: int, record_property: Any
) -> None:
    """The logits of all prompts correlate with the float32 reference."""
    actual = _whole(served.prompts[place], mesh)
    lengths = example.LENGTHS[place]
    _compare(
        [logits[:length] for logits, length in zip(expected[place], lengths, strict=True)],
        [logits[:length] for logits, length in zip(actual, lengths, strict=True)],
        record_property,
    )


@pytest.mark.parametrize("step", range(example.STEPS))
def test_decode_agrees_with_torch(
    mesh: Any, served: Served, expected: list[list[Any]], step: int, record_property: Any
) -> None:
    """So do the logits after each further token, which read latent keys from the cache."""
    wanted, actual = _after(step, expected, _whole(served.steps[step], mesh))
    _compare(wanted, actual, record_property)


def test_wrong_weights_are_noticed(
    mesh: Any, served: Served, expected: list[list[Any]], record_property: Any
) -> None:
    """With two matrices of the experts mixed up in one layer, the logits do not agree."""
    wanted, actual = _after(example.STEPS - 1, expected, _whole(served.spoiled, mesh))
    with pytest.raises(AssertionError):
        _compare(wanted, actual, record_property)


def _whole(logits: Any, mesh: Any) -> Any:
    """Return the logits of all words in float32: [row of chips, token, word]."""
    composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=example.MESH, dims=(0, 3))
    return ttnn.to_torch(logits, mesh_composer=composer)[:, 0].float()


def _after(step: int, expected: list[list[Any]], actual: Any) -> tuple[list[Any], list[Any]]:
    """Return for each user what the reference and the model have after a further token."""
    pairs = [
        (logits[length + step], actual[row, taken])
        for taken, lengths, users in zip(example.TAKEN, example.LENGTHS, expected, strict=True)
        for row, (length, logits) in enumerate(zip(lengths, users, strict=True))
    ]
    return [wanted for wanted, _ in pairs], [found for _, found in pairs]


def _compare(expected: list[Any], actual: list[Any], record_property: Any) -> None:
    """Demand that the logits of every user agree; the worst ones are on record."""
    import deepseek_reference as reference  # needs torch, which the spec test does without

    worst = min(reference.pcc(*pair) for pair in zip(expected, actual, strict=True))
    record_property("pcc", worst)
    assert worst >= EXPECTED_PCC
