"""What synthetic photos are made from: an index of real ones, or a statistical stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

DEFAULT_SOURCE = Path("runs/flickr8k-index")
EMBEDDING_DIM, TOKEN_DIM, GRID = 256, 128, 7
REGIONS = GRID**2

_STAND_IN_PHOTOS, _STAND_IN_CAPTIONS, _STAND_IN_GRID, _STAND_IN_WORDS = 1000, 5, 4, 12


class Photos(NamedTuple):
    """Some photos.

    Attributes:
        embeddings: (photos, 256) float32, L2-normalised.
        tokens: (photos, 49, 128) float32, L2-normalised.
    """

    embeddings: NDArray[np.float32]
    tokens: NDArray[np.float32]


class Caption(NamedTuple):
    """A text that says what is on a photo.

    Attributes:
        embedding: (256,) float32, L2-normalised.
        words: (words, 128) float32, L2-normalised.
    """

    embedding: NDArray[np.float32]
    words: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Photos with their captions.

    Attributes:
        name: to be printed.
        photos: the photos.
        captions: of each photo; none has fewer than 8 or more than 16 words, unless all have.
    """

    name: str
    photos: Photos
    captions: list[list[Caption]]


def find_source(path: Path | None = None) -> Source:
    """Read an index, or make the stand-in.

    Args:
        path: of an index; None: `DEFAULT_SOURCE` if it is there, else the stand-in.
    """
    if path is None and not (DEFAULT_SOURCE / "CURRENT").exists():
        return stand_in_source()
    return index_source(path or DEFAULT_SOURCE)


def index_source(path: Path) -> Source:
    """Read an index of photos with a like number of captions each, in the photos' order.

    The arrays are read without the manifest, so that an index of an older schema will do. Its
    regions are resampled to a grid of 7 x 7, which is as many as a ViT of patches of 32 px has.

    Args:
        path: of the index, with float16 tokens.
    """
    generation = path / "generations" / (path / "CURRENT").read_text(encoding="ascii").strip()
    embeddings, tokens, _ = _arrays(generation / "images")
    regions = tokens.reshape(len(embeddings), -1, tokens.shape[1])
    texts, words, word_offsets = _arrays(generation / "texts")
    per_photo = len(texts) // len(embeddings)
    parts = np.split(words, word_offsets[1:-1])
    captions = [Caption(*caption) for caption in zip(texts, parts, strict=True)]
    return Source(
        name=str(path),
        photos=Photos(embeddings, _on_grid(regions)),
        captions=[
            _of_usual_length(captions[start : start + per_photo])
            for start in range(0, len(captions), per_photo)
        ],
    )


def stand_in_source() -> Source:
    """Make photos and captions whose statistics are those of 1,000 photos of Flickr8k.

    A photo is a point z of 48 dimensions: one of 150 cluster centres plus what is its own. All
    else are linear maps of z around a mean, plus noise. Measured on the real photos, and kept: the
    spectrum of the embeddings (a factor of 0.92 from each principal direction to the next), the
    length of their mean (0.70) and of the regions' (0.88), the cosine between regions of a photo
    (0.94), and how far captions and words lean to their photos.
    """
    random = np.random.default_rng(0)
    count, dims = _STAND_IN_PHOTOS, 48

    def normal(*shape: int) -> NDArray[np.float32]:
        return random.standard_normal(shape, dtype=np.float32)

    def basis(dim: int) -> NDArray[np.float32]:
        return np.linalg.qr(normal(dim, dim))[0].astype(np.float32)

    spectrum = np.sqrt(0.92 ** np.arange(dims, dtype=np.float32))
    spectrum /= np.linalg.norm(spectrum)
    centre = normal(150, dims)[random.integers(0, 150, count)]
    z = spectrum * (0.7**0.5 * centre + 0.3**0.5 * normal(count, dims))  # (photos, 48)

    matching = basis(EMBEDDING_DIM)
    mean, to_embedding = matching[0], matching[1 : dims + 1]
    embeddings = 0.70 * mean + 0.71 * z @ to_embedding
    per_caption = np.repeat(z, _STAND_IN_CAPTIONS, axis=0)
    said = per_caption + 1.7 * spectrum * normal(len(per_caption), dims)  # (captions, 48)
    texts = -0.2 * mean + 0.71 * matching[-1] + 0.34 * said @ to_embedding

    alignment = basis(TOKEN_DIM)
    mean, to_token = alignment[0], alignment[1 : dims + 1]
    local = spectrum * normal(count, _STAND_IN_GRID**2, dims)
    regions = 0.88 * mean + (0.41 * z[:, None] + 0.2 * local) @ to_token
    noise = 0.7 * spectrum * normal(len(said), _STAND_IN_WORDS, dims)
    words = -0.11 * mean + 0.82 * alignment[-1] + 0.2 * (said[:, None] + noise) @ to_token
    captions = [
        Caption(*caption) for caption in zip(_normalised(texts), _normalised(words), strict=True)
    ]
    return Source(
        name="statistical stand-in (no index of real photos at hand)",
        photos=Photos(_normalised(embeddings), _on_grid(_normalised(regions))),
        captions=[
            captions[start : start + _STAND_IN_CAPTIONS]
            for start in range(0, len(captions), _STAND_IN_CAPTIONS)
        ],
    )


def _arrays(
    side: Path,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    tokens = np.load(side / "tokens.npy").astype(np.float32)
    return np.load(side / "embeddings.npy"), tokens, np.load(side / "offsets.npy")


def _of_usual_length(captions: list[Caption]) -> list[Caption]:
    return [each for each in captions if 8 <= len(each.words) <= 16] or captions


def _on_grid(regions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Resample the regions of photos, which begin with a square grid, to 7 x 7."""
    photos, count, dim = regions.shape
    edge = int(count**0.5)
    grid = torch.from_numpy(regions[:, : edge**2]).reshape(photos, edge, edge, dim)
    finer = F.interpolate(grid.permute(0, 3, 1, 2), (GRID, GRID), mode="bilinear")
    tokens = finer.flatten(2).permute(0, 2, 1)  # (photos, 49, dim)
    return F.normalize(tokens, dim=2).contiguous().numpy()


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
