"""Hubness correction: an item's scores less its mean score for the nearest queries of a bank.

Some items, the hubs, are near to queries of any kind and are found too often. Nearest neighbor
normalization (Chowdhury et al., EMNLP 2024) subtracts the same bias from all scores of an item,

    bias(item) = weight * mean of the `nearest` highest scores of the item for a bank of queries,

where the bank holds texts for photos and photos for texts. Both stages have a bias, of the cosine
and of the alignment score. Two things differ from the paper. The mean bias of the bank's own items
is subtracted from all, which changes no order and leaves scores near to what they were. And the
alignment of a photo adds up over the words of a text: its bias is that of a word, and counts once
for each word of the query.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import ConfigDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import atomic_file, parse_json
from aladin_network.scoring.encoding import (
    BLOCK_BYTES,
    Encoding,
    TokenRows,
    best_cosines,
    sums_of_items,
)
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import Direction, Target

CORRECTION = "correction.safetensors"

_BANKS: tuple[Target, ...] = ("images", "texts")


class EncodedItems(NamedTuple):
    """Encoded photos or texts, without padding.

    Attributes:
        embeddings: (items, d_match) float32, L2-normalised.
    """

    embeddings: Float[np.ndarray, "items d_match"]
    tokens: TokenRows

    @classmethod
    def of(cls, encoding: Encoding) -> EncodedItems:
        """Leave the padding of a batch out."""
        lengths = encoding.mask.sum(axis=1, dtype=np.int64)
        return cls(encoding.embedding, TokenRows(encoding.tokens[encoding.mask], lengths))


@dataclass(frozen=True, kw_only=True)
class NearestMean:
    """Constants of the bias of one score.

    Attributes:
        nearest: Number of the bank's queries with the highest scores.
        weight: Factor of their mean score; 0 corrects nothing.
        centre: Mean bias of the bank's own items, which is subtracted from every bias.
    """

    nearest: int = 1
    weight: float = 0.0
    centre: float = 0.0

    def biases(self, scores: Float[np.ndarray, "items queries"]) -> Float[np.ndarray, " items"]:
        """Return the biases of items, given their scores for all queries of the bank."""
        if self.weight == 0:
            return np.zeros(len(scores), dtype=np.float32)
        count = min(self.nearest, scores.shape[1])
        highest = np.partition(scores, scores.shape[1] - count, axis=1)[:, -count:]
        return (self.weight * highest.mean(axis=1) - self.centre).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class DirectionCorrection:
    """Constants of one direction of search.

    Attributes:
        match: Bias of the cosine.
        align: Bias of the alignment score; of a photo for each word of the query.
    """

    match: NearestMean = NearestMean()
    align: NearestMean = NearestMean()


@dataclass(frozen=True, kw_only=True)
class CorrectionConstants:
    """Fitted constants, as stored.

    Attributes:
        model_id: SHA-256 of the weights that encoded the banks.
        data: File name of the data set of the banks.
        selection: Split that the constants were chosen on.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model_id: str
    data: str
    selection: str
    text_to_image: DirectionCorrection = DirectionCorrection()
    image_to_text: DirectionCorrection = DirectionCorrection()
    fusion: Fusion = field(default_factory=Fusion)

    @property
    def id(self) -> str:
        """First 64 bits of the constants' SHA-256, as hexadecimal digits."""
        content = json.dumps(dump_config(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def of(self, direction: Direction) -> DirectionCorrection:
        """Return the constants of one direction."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text


@dataclass(frozen=True, kw_only=True)
class HubCorrection:
    """The correction of a checkpoint, or of an index that was built with it.

    Attributes:
        images: Bank of photos, for the biases of texts.
        texts: Bank of texts, for the biases of photos.
    """

    constants: CorrectionConstants
    images: EncodedItems
    texts: EncodedItems

    def biases(self, target: Target, items: EncodedItems) -> Float[np.ndarray, "items 2"]:
        """Return the biases of items.

        Args:
            target: Whether they are photos or texts.
            items: The items, encoded by the same model.

        Returns:
            float32; what is subtracted from the cosine, and from the alignment score: from that of
            a photo as often as the query has words.
        """
        if target == "images":
            constants, bank = self.constants.text_to_image, self.texts
        else:
            constants, bank = self.constants.image_to_text, self.images
        biases = np.zeros((len(items.embeddings), 2), dtype=np.float32)
        biases[:, 0] = constants.match.biases(match_with_bank(items, bank))
        if constants.align.weight != 0 and len(items.tokens.values):
            biases[:, 1] = constants.align.biases(align_with_bank(target, items, bank))
        return biases

    def save(self, path: Path) -> None:
        """Write the correction to a file, atomically.

        Raises:
            OSError: If the disk is full or cannot be written.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for name in _BANKS:
            bank: EncodedItems = getattr(self, name)
            arrays[f"{name}.embeddings"] = np.ascontiguousarray(bank.embeddings)
            arrays[f"{name}.tokens"] = bank.tokens.values.astype(np.float16)
            arrays[f"{name}.lengths"] = bank.tokens.lengths
        metadata = {"constants": json.dumps(dump_config(self.constants))}
        with atomic_file(path) as partial:
            partial.touch()
            mode = partial.stat().st_mode
            save_file(arrays, partial, metadata)
            partial.chmod(mode)  # the library gives the file mode 0600, whatever the umask


def load_correction(path: Path) -> HubCorrection:
    """Read a correction.

    Raises:
        CheckpointError: If the file cannot be read, or is not a correction.
    """
    try:
        with safe_open(path, "np") as file:
            data: Any = parse_json((file.metadata() or {})["constants"])
            constants = parse_config(CorrectionConstants, data, str(path))
            banks = [
                EncodedItems(
                    file.get_tensor(f"{name}.embeddings"),
                    TokenRows(
                        file.get_tensor(f"{name}.tokens").astype(np.float32),
                        file.get_tensor(f"{name}.lengths"),
                    ),
                )
                for name in _BANKS
            ]
    except (OSError, SafetensorError, ValueError, KeyError, ConfigError) as error:
        raise CheckpointError(f"{path}: not a hubness correction ({error})") from error
    return HubCorrection(constants=constants, images=banks[0], texts=banks[1])


def read_correction(folder: Path, model_id: str) -> HubCorrection | None:
    """Read the correction of a checkpoint.

    Args:
        folder: Checkpoint folder.
        model_id: Id of the checkpoint's weights.

    Returns:
        None if none was fitted.

    Raises:
        CheckpointError: If the file is not a correction, or belongs to other weights.
    """
    path = folder / CORRECTION
    if not path.exists():
        return None
    correction = load_correction(path)
    if correction.constants.model_id != model_id:
        raise CheckpointError(
            f"{path}: expected a correction of model {model_id}, found one of "
            f"{correction.constants.model_id}; fit it anew: aladin correct"
        )
    return correction


def match_with_bank(items: EncodedItems, bank: EncodedItems) -> Float[np.ndarray, "items queries"]:
    """Return the cosines of items with the queries of a bank."""
    return items.embeddings @ bank.embeddings.T


def align_with_bank(
    target: Target, items: EncodedItems, bank: EncodedItems
) -> Float[np.ndarray, "items queries"]:
    """Return the alignment scores of items with the queries of a bank; of photos for each word."""
    align = _photos_per_word if target == "images" else _texts_with_photos
    return align(items.tokens, bank.tokens)


def _photos_per_word(photos: TokenRows, texts: TokenRows) -> Float[np.ndarray, "photos texts"]:
    """Return the alignment scores of photos for texts, divided by the texts' number of words."""
    words = np.maximum(texts.lengths, 1).astype(np.float32)
    parts = [
        sums_of_items(best_cosines(texts.values, block), texts.lengths).T / words
        for block in photos.blocks(_tokens_a_block(texts))
    ]
    return np.concatenate(parts)


def _texts_with_photos(texts: TokenRows, photos: TokenRows) -> Float[np.ndarray, "texts photos"]:
    """Return the alignment scores of texts with photos."""
    parts = [
        sums_of_items(best_cosines(block.values, photos), block.lengths)
        for block in texts.blocks(_tokens_a_block(photos))
    ]
    return np.concatenate(parts)


def _tokens_a_block(bank: TokenRows) -> int:
    """Return how many tokens of items are compared with a bank at a time."""
    return max(1, BLOCK_BYTES // (4 * max(1, len(bank.values))))
