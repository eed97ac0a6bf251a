"""A small text classifier in plain PyTorch: embeddings, encoder blocks, a head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a classifier."""

    vocabulary: int = 512
    sequence: int = 32
    hidden: int = 64
    heads: int = 4
    expansion: int = 4
    blocks: int = 2
    classes: int = 8


class Attention(nn.Module):
    """Self-attention over the tokens that the mask lets be seen."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.qkv = nn.Linear(sizes.hidden, 3 * sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.hidden)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the information that each token has gathered from the others."""
        batch, sequence, width = hidden.shape
        fused = self.qkv(hidden).view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        context = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None, :]
        )
        gathered: torch.Tensor = self.output(context.transpose(1, 2).flatten(2))
        return gathered


class Block(nn.Module):
    """One encoder block, each half of it on top of a layer norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        wide = sizes.expansion * sizes.hidden
        self.attention_norm = nn.LayerNorm(sizes.hidden)
        self.attention = Attention(sizes)
        self.mlp_norm = nn.LayerNorm(sizes.hidden)
        self.up = nn.Linear(sizes.hidden, wide)
        self.down = nn.Linear(wide, sizes.hidden)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the tokens after attention and the wide layer."""
        hidden = hidden + self.attention(self.attention_norm(hidden), mask)
        return hidden + self.down(functional.gelu(self.up(self.mlp_norm(hidden))))


class Classifier(nn.Module):
    """Tokens to the logits of classes, by the mean of all tokens that are there."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.places = nn.Embedding(sizes.sequence, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.norm = nn.LayerNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.classes)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of each text; ``mask`` is true where a token is there."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            hidden = block(hidden, mask)
        seen = mask[..., None].to(hidden.dtype)
        mean = (self.norm(hidden) * seen).sum(dim=1) / seen.sum(dim=1)
        logits: torch.Tensor = self.head(mean)
        return logits


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts of different lengths, padded to one, with the class of each."""

    tokens: torch.Tensor
    mask: torch.Tensor
    classes: torch.Tensor


def make_classifier(sizes: Sizes, seed: int = 0) -> Classifier:
    """Return a classifier with random weights, the same for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return Classifier(sizes)


def make_batch(sizes: Sizes, texts: int = 4, seed: int = 1) -> Batch:
    """Return random texts, the same for the same seed; the first one has the full length."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(sizes.vocabulary, (texts, sizes.sequence), generator=generator)
    lengths = torch.randint(1, sizes.sequence + 1, (texts,), generator=generator)
    lengths[0] = sizes.sequence
    mask = torch.arange(sizes.sequence) < lengths[:, None]
    classes = torch.randint(sizes.classes, (texts,), generator=generator)
    return Batch(tokens, mask, classes)


def train(classifier: Classifier, batch: Batch, steps: int) -> list[float]:
    """Fit the classifier to one batch; return the loss of each step."""
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(classifier(batch.tokens, batch.mask), batch.classes)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
