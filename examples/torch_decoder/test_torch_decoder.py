"""Test the decoder as a model's own test would: generate, compare, train."""

from __future__ import annotations

import pytest
import torch
import torch_decoder_model as model

CONFIG = model.DecoderConfig()


def make_tokens(texts: int, length: int) -> torch.Tensor:
    """Return random tokens, always the same."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(CONFIG.vocabulary, (texts, length), generator=generator)


def test_generation_with_a_cache_is_that_without() -> None:
    """Each token is the likeliest one after all before it, computed at once."""
    decoder = model.DecoderForCausalLM.from_config(CONFIG).eval()
    found = decoder.generate(make_tokens(2, 8), new_tokens=6)
    assert tuple(found.shape) == (2, 14)
    with torch.no_grad():
        expected = decoder(found[:, :-1])[:, 7:].argmax(-1)
    assert torch.equal(found[:, 8:], expected)


def test_a_training_step_lowers_the_loss() -> None:
    """A few steps on one batch make it likelier."""
    losses = model.train(model.DecoderForCausalLM.from_config(CONFIG), make_tokens(2, 17), steps=3)
    assert losses == sorted(losses, reverse=True)


def test_a_llama_of_transformers_generates_and_learns() -> None:
    """The same with a model of Hugging Face, if transformers is installed."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=CONFIG.vocabulary,
        hidden_size=CONFIG.hidden,
        intermediate_size=CONFIG.intermediate,
        num_hidden_layers=CONFIG.layers,
        num_attention_heads=CONFIG.heads,
        num_key_value_heads=CONFIG.key_value_heads,
    )
    llama = transformers.LlamaForCausalLM(config)
    prompt = make_tokens(1, 8)
    found = llama.generate(prompt, max_new_tokens=4, do_sample=False)
    assert tuple(found.shape) == (1, 12)
    loss = llama(input_ids=prompt, labels=prompt).loss
    loss.backward()
    assert torch.isfinite(loss)
