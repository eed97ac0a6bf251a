"""Test the classifier as a model's own test would: run, compare, train."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_encoder_model as model
import torch_encoder_reference as reference

SIZES = model.Sizes()
EXPECTED_PCC = {torch.float32: 0.999999, torch.bfloat16: 0.999}

dtypes = pytest.mark.parametrize("dtype", EXPECTED_PCC, ids=lambda dtype: str(dtype)[6:])


@dtypes
def test_logits_have_a_row_for_each_text(dtype: torch.dtype) -> None:
    """The shape follows the batch, and the dtype follows the weights."""
    batch = model.make_batch(SIZES, texts=3)
    logits = model.make_classifier(SIZES).to(dtype)(batch.tokens, batch.mask)
    assert tuple(logits.shape) == (3, SIZES.classes)
    assert logits.dtype == dtype


@dtypes
@torch.no_grad()
def test_pcc_with_numpy(dtype: torch.dtype, record_property: Any) -> None:
    """The logits correlate with the float64 reference as far as the dtype allows."""
    batch = model.make_batch(SIZES)
    classifier = model.make_classifier(SIZES)
    weights = {name: array.double().numpy() for name, array in classifier.state_dict().items()}
    expected = reference.classify(weights, batch.tokens.numpy(), batch.mask.numpy(), SIZES.heads)
    logits = classifier.to(dtype)(batch.tokens, batch.mask)
    pcc = reference.pcc(expected, logits.double().numpy())
    record_property("pcc", pcc)
    assert pcc >= EXPECTED_PCC[dtype]


@torch.no_grad()
def test_padding_is_not_seen() -> None:
    """What stands where no token is changes nothing."""
    batch = model.make_batch(SIZES)
    classifier = model.make_classifier(SIZES)
    others = batch.tokens.masked_fill(~batch.mask, 7)
    assert not torch.equal(others, batch.tokens)
    logits = (classifier(tokens, batch.mask) for tokens in (batch.tokens, others))
    torch.testing.assert_close(*logits)


def test_training_lowers_the_loss() -> None:
    """A few steps on one batch make it likelier, through the backward pass and the optimizer."""
    losses = model.train(model.make_classifier(SIZES), model.make_batch(SIZES), steps=4)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2
