"""Programs in plain PyTorch of the kinds that people trace; each returns its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[], Any]

HIDDEN, HEADS, VOCABULARY = 128, 4, 512


class DecoderLayer(nn.Module):
    """A layer of a Llama: rotary attention with a cache, and a gated perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, cache: list[torch.Tensor]) -> Any:
        """Return the hidden states; ``cache`` gets the new keys and values."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.first(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = rotate(qkv[0], angles), rotate(qkv[1], angles), qkv[2]
        if cache:
            key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        cache[:] = key, value
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, HIDDEN))
        normed = self.second(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Return ``x`` with its halves rotated by the angles of their positions."""
    first, second = x.chunk(2, -1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Decoder(nn.Module):
    """A small Llama."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        half = HIDDEN // HEADS // 2
        self.register_buffer("rates", 10_000 ** (-torch.arange(half) / half))

    def forward(self, tokens: torch.Tensor, caches: list[list[torch.Tensor]], start: int) -> Any:
        """Return the logits of the tokens, which begin at position ``start``."""
        positions = torch.arange(start, start + tokens.shape[1])
        angles = positions[:, None] * self.rates
        x = self.tokens(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, angles, cache)
        return self.head(self.norm(x))


def generate() -> Program:
    """Return greedy generation of 24 tokens with a cache."""
    model = Decoder().eval()
    prompt = torch.randint(VOCABULARY, (1, 16))

    @torch.no_grad()
    def run() -> torch.Tensor:
        caches: list[list[torch.Tensor]] = [[] for _ in model.layers]
        tokens, found = prompt, prompt
        for _ in range(24):
            logits = model(tokens, caches, found.shape[1] - tokens.shape[1])
            tokens = logits[:, -1:].argmax(-1)
            found = torch.cat([found, tokens], 1)
        return found

    return run


def encoder() -> Program:
    """Return a pass through torch's own encoder, which takes its fast path."""
    layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
    x = torch.randn(4, 32, HIDDEN)

    @torch.no_grad()
    def run() -> torch.Tensor:
        return model(x)

    return run


class Block(nn.Module):
    """A residual block of a ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> Any:
        """Return the image after the block."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(x + self.norms[1](self.second(inner)))


def backbone(blocks: int = 8) -> nn.Module:
    """Return a small ResNet without its head."""
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(Block(16) for _ in range(blocks)))


def cnn() -> Program:
    """Return a pass through a small ResNet."""
    model = nn.Sequential(
        backbone(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    ).eval()
    x = torch.randn(1, 3, 24, 24)

    @torch.no_grad()
    def run() -> torch.Tensor:
        return model(x)

    return run


def training() -> Program:
    """Return two steps of training a small decoder with AdamW."""

    def run() -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = Decoder(layers=2)
        optimizer = torch.optim.AdamW(model.parameters())
        tokens = torch.randint(VOCABULARY, (2, 17))
        for _ in range(2):
            optimizer.zero_grad()
            logits = model(tokens[:, :-1], [[] for _ in model.layers], 0)
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
        return [each.detach() for each in model.parameters()]

    return run


def detection() -> Program:
    """Return a pass through a small detector, with suppression of overlapping boxes."""
    body, head = backbone(4).eval(), nn.Conv2d(16, 5, 1).eval()
    x = torch.randn(1, 3, 24, 24)

    @torch.no_grad()
    def run() -> torch.Tensor:
        raw = head(body(x))[0].permute(1, 2, 0).reshape(-1, 5)
        scores, order = raw[:, 4].sigmoid().topk(48)
        corners, sizes = raw[order, :2], raw[order, 2:4].exp()
        boxes = torch.cat([corners, corners + sizes], 1)
        kept = []
        left = torch.ones(len(boxes), dtype=torch.bool)
        while left.any():
            best = int(left.nonzero()[0])
            kept.append(best)
            low = torch.maximum(boxes[best, :2], boxes[:, :2])
            high = torch.minimum(boxes[best, 2:], boxes[:, 2:])
            shared = (high - low).clamp(min=0).prod(1)
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
            left &= shared / (areas + areas[best] - shared) < 0.5
            left[best] = False
        return torch.cat([boxes[kept], scores[kept, None]], 1)

    return run


def compiled() -> Program:
    """Return a program of which a part is compiled, and the rest is not."""
    layer = DecoderLayer().eval()
    gated = torch.compile(
        lambda x: layer.down(functional.silu(layer.gate(x)) * layer.up(x)), backend="aot_eager"
    )
    x = torch.randn(1, 16, HIDDEN)

    @torch.no_grad()
    def run() -> torch.Tensor:
        found = x
        for _ in range(20):
            found = functional.layer_norm(gated(found) + found, (HIDDEN,))
        return found

    return run


PROGRAMS = {
    "generate": generate,
    "encoder": encoder,
    "cnn": cnn,
    "training": training,
    "detection": detection,
    "compile": compiled,
}
