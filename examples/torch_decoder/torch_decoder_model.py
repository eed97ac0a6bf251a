"""A decoder as Hugging Face writes them, from a configuration with random weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

Cache = list[tuple[torch.Tensor, torch.Tensor] | None]


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The sizes of a decoder; ``key_value_heads`` are shared by several query heads."""

    vocabulary: int = 512
    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    rope_theta: float = 10_000.0

    @property
    def head_size(self) -> int:
        """The size of one head."""
        return self.hidden // self.heads


def rotate(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Return heads with the halves of each row rotated by their positions."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, device=x.device) / half)
    angles = positions[:, None] * rates
    first, second = x.chunk(2, -1)
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


class Attention(nn.Module):
    """Causal attention with rotary positions, grouped heads and a cache."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.head_size
        self.q_proj = nn.Linear(config.hidden, config.heads * size, bias=False)
        self.k_proj = nn.Linear(config.hidden, config.key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(config.hidden, config.key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.heads * size, config.hidden, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, cache: Cache | None, layer: int
    ) -> torch.Tensor:
        """Return what each token has gathered from those before it."""
        batch, length, _ = x.shape
        theta = self.config.rope_theta

        def heads(projected: torch.Tensor) -> torch.Tensor:
            return projected.view(batch, length, -1, self.config.head_size).transpose(1, 2)

        query = rotate(heads(self.q_proj(x)), positions, theta)
        key = rotate(heads(self.k_proj(x)), positions, theta)
        value = heads(self.v_proj(x))
        if cache is not None:
            before = cache[layer]
            if before is not None:
                key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
            cache[layer] = (key, value)
        groups = self.config.heads // self.config.key_value_heads
        mixed = functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(groups, 1),
            value.repeat_interleave(groups, 1),
            is_causal=length > 1,
        )
        gathered: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return gathered


class DecoderLayer(nn.Module):
    """Attention and a gated perceptron, each on top of a norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden, eps=1e-6)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, eps=1e-6)
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, cache: Cache | None, layer: int
    ) -> torch.Tensor:
        """Return the hidden states after the layer."""
        x = x + self.self_attn(self.input_layernorm(x), positions, cache, layer)
        normed = self.post_attention_layernorm(x)
        gated = functional.silu(self.gate_proj(normed)) * self.up_proj(normed)
        after: torch.Tensor = x + self.down_proj(gated)
        return after


class DecoderForCausalLM(nn.Module):
    """A decoder with a head over the vocabulary."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=1e-6)
        self.lm_head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    @classmethod
    def from_config(cls, config: DecoderConfig, seed: int = 0) -> DecoderForCausalLM:
        """Return a decoder with random weights, the same for the same seed."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return cls(config)

    def forward(
        self, tokens: torch.Tensor, cache: Cache | None = None, start: int = 0
    ) -> torch.Tensor:
        """Return the logits of tokens that begin at position ``start``."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, positions, cache, number)
        logits: torch.Tensor = self.lm_head(self.norm(x))
        return logits

    @torch.no_grad()
    def generate(self, prompt: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """Return the prompt and the likeliest tokens after it; each step computes one token."""
        cache: Cache = [None] * self.config.layers
        found, tokens = prompt, prompt
        for _ in range(new_tokens):
            logits = self(tokens, cache, found.shape[1] - tokens.shape[1])
            tokens = logits[:, -1:].argmax(-1)
            found = torch.cat([found, tokens], 1)
        return found


def train(model: DecoderForCausalLM, tokens: torch.Tensor, steps: int) -> list[float]:
    """Fit a decoder to one batch of texts; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
