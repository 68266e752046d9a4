"""Encode a whole data set, keeping only what one score reads."""

from __future__ import annotations

from aladin.encoding import Encoding
from aladin.model import AladinModel
from aladin.progress import Progress
from aladin.scoring import ScoreName
from training.dataset import PairDataset


def encode_for_score(
    model: AladinModel, dataset: PairDataset, score: ScoreName, progress: Progress
) -> tuple[Encoding, Encoding]:
    """Encode every photo and caption.

    The tokens of a large training split fill more memory than any machine has (COCO: some
    hundred GiB); where only the embeddings are scored, the tokens of each batch are let go.

    Args:
        model: in evaluation mode.
        dataset: photos and captions.
        score: that is to be computed from the encodings.
        progress: told of photos, then of captions.

    Returns:
        The images and the texts by row, on the model's device; for matching without tokens.
    """
    if score != "matching":
        return dataset.encode(model, progress=progress)
    return dataset.encode(model, keep=_without_tokens, progress=progress)


def _without_tokens(encoding: Encoding) -> Encoding:
    return Encoding(
        encoding.embedding, encoding.tokens[:, :0].clone(), encoding.mask[:, :0].clone()
    )
