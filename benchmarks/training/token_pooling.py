"""What a learned pooling of tokens gains over their mean, for a network of photos and texts.

    python -m benchmarks.training.token_pooling CHECKPOINT DATA [--epochs 20]

The network is stripped to its tokens, as a converted late-interaction network has them. The pooling
of `aladin convert multivector --pooling learned` is fitted on the training split, one caption a
photo, with the loss of the recipe `pooling`. Printed is the share of the ten best photos by
alignment that are among the first 10, 20, 50 and 100 by the embedding, for the first captions of
the validation split.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import MatchingHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.heads.matching import MatchingHead, start_as_mean
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch, alignment_scores
from aladin_network.types import Modality, NullProgress
from aladin_training.data import read_records
from aladin_training.evaluation import encode_records
from aladin_training.losses.listnet import ListNetLoss

_BATCH = 128
_TOP = 10
_CANDIDATES = (10, 20, 50, 100)
_EVERY = 4  # epochs between two lines

Pairs = tuple[EncodedBatch, EncodedBatch]


def encode(model: AladinModel, data: Path, split: str) -> Pairs:
    """Return the photos of a split, and the first caption of each."""
    records = read_records(data, split)
    images, texts = encode_records(model, records, NullProgress())
    counts = torch.tensor([len(record.captions) for record in records])
    return images, texts.rows(counts.cumsum(0) - counts)


def embed(head: MatchingHead, of: EncodedBatch, modality: Modality) -> torch.Tensor:
    """Pool the tokens of items."""
    return head(Features(of.tokens, of.mask, of.mask), modality)


@torch.no_grad()
def recalls(head: MatchingHead, pairs: Pairs) -> str:
    """Return the recall of the alignment's top 10 for each number of candidates."""
    images, texts = pairs
    best = alignment_scores(images, texts).T.topk(_TOP, dim=1).indices
    cosines = embed(head, texts, "text") @ embed(head, images, "image").T
    found = best.unsqueeze(2) == cosines.topk(max(_CANDIDATES), dim=1).indices.unsqueeze(1)
    shares = [float(found[..., :count].any(dim=2).float().mean()) for count in _CANDIDATES]
    return " ".join(f"{share:6.3f}" for share in shares)


def main() -> None:
    """Print a line for the mean, and one every few epochs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = load_checkpoint(options.checkpoint).model
    train, validation = (encode(model, options.data, split) for split in ("train", "val"))
    dim = model.alignment.dim
    config = MatchingHeadConfig(layers=0, pooling=("learned",), dim=dim, feedforward=4 * dim)
    head = MatchingHead(config, dim, dim)
    start_as_mean(head)
    print("candidates", *(f"{count:>6}" for count in _CANDIDATES))
    print("mean      ", recalls(head, validation), flush=True)
    loss = ListNetLoss(temperature=20.0)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for epoch in range(1, options.epochs + 1):
        for rows in torch.randperm(train[0].size).split(_BATCH):
            images, texts = (part.rows(rows) for part in train)
            scores = embed(head, images, "image") @ embed(head, texts, "text").T
            optimizer.zero_grad()
            loss(scores, alignment_scores(images, texts)).backward()
            optimizer.step()
        if epoch % _EVERY == 0:
            print(f"epoch {epoch:>4}", recalls(head, validation), flush=True)


if __name__ == "__main__":
    main()
