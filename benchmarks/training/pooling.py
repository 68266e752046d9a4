"""Recall of the alignment's best documents among the candidates of an embedding.

    python -m benchmarks.training.pooling DATA CHECKPOINT...

DATA is a folder in BEIR's format with texts on both sides. For each checkpoint of a network for
texts alone: the share of the ten best documents by alignment that are among the first 10, 20, 50
and 100 by matching, over the queries of a split.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.scores import alignment_scores, matching_scores
from aladin_network.types import NullProgress
from aladin_training.data.beir import read_text_pairs
from aladin_training.evaluation import encode_captions, encode_corpus

_TOP = 10
_CANDIDATES = (10, 20, 50, 100)


def recalls(checkpoint: Path, data: Path, split: str, most_queries: int) -> list[float]:
    """Return the recall of the alignment's top 10 for each number of candidates."""
    model = load_checkpoint(checkpoint).model
    records = read_text_pairs(data, split)
    queries = [query for record in records for query in record.captions]
    step = max(1, len(queries) // most_queries)
    with torch.inference_mode():
        documents = encode_corpus(model, [each.document for each in records], NullProgress())
        asked = encode_captions(model, queries[::step], NullProgress())
        best = alignment_scores(documents, asked).T.topk(_TOP, dim=1).indices
        order = matching_scores(documents, asked).T.topk(max(_CANDIDATES), dim=1).indices
    found = best.unsqueeze(2) == order.unsqueeze(1)  # (queries, 10, candidates)
    return [float(found[..., :count].any(dim=2).float().mean()) for count in _CANDIDATES]


def main() -> None:
    """Print a line for each checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path, nargs="+")
    parser.add_argument("--split", default="val")
    parser.add_argument("--queries", type=int, default=500)
    options = parser.parse_args()
    print("candidates", *(f"{count:>6}" for count in _CANDIDATES))
    for checkpoint in options.checkpoint:
        shares = recalls(checkpoint, options.data, options.split, options.queries)
        print(checkpoint, *(f"{share:6.3f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
