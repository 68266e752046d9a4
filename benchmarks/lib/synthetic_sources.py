"""Sources of synthetic photos: an index of real ones, or a statistical stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from aladin_index.ann.hub_correction import without_biases
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import read_manifest
from aladin_index.format.npy import write_npy
from aladin_index.generations.reader import open_collection
from aladin_index.search.file_collection import StoredCollection
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import CENTROIDS, FILE_OF, OFFSETS, TokenStore
from aladin_network.errors import ConfigError
from aladin_network.types import TokenDtype
from benchmarks.lib.small_collection import unit_rows

DEFAULT_SOURCE = Path("runs/flickr8k-index")
EMBEDDING_DIM, TOKEN_DIM, GRID = 256, 128, 7
REGIONS = GRID**2

_STORED_CAPTIONS = 3  # captions of each photo
_STAND_IN_PHOTOS, _STAND_IN_CAPTIONS, _STAND_IN_GRID, _STAND_IN_WORDS = 1000, 5, 4, 12


class Photos(NamedTuple):
    """Some photos.

    Attributes:
        embeddings: (photos, 256) float32, L2-normalised.
        tokens: (photos, regions, 128) float32, L2-normalised; 49 regions unless said.
    """

    embeddings: NDArray[np.float32]
    tokens: NDArray[np.float32]


class Caption(NamedTuple):
    """A text that describes a photo.

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
        name: Name to be printed.
        photos: The photos.
        captions: Captions of each photo; only those of 8 to 16 words, unless a photo has no such
            caption.
        ids: Ids of the photos in their index; none of photos that are made up.
    """

    name: str
    photos: Photos
    captions: list[list[Caption]]
    ids: Sequence[str] = ()

    def divided(self) -> tuple[Source, Source]:
        """Divide the captions of each photo: the first three are in an index, others ask.

        What is chosen or fitted by an index's own texts is then measured with texts that it has
        not seen. A photo with fewer captions is asked for with its last one.
        """
        stored = [of_photo[:_STORED_CAPTIONS] for of_photo in self.captions]
        asking = [of_photo[_STORED_CAPTIONS:] or of_photo[-1:] for of_photo in self.captions]
        return replace(self, captions=stored), replace(self, captions=asking)

    def keeping(self, regions: int) -> Source:
        """Keep as many regions of each photo, evenly spaced.

        Args:
            regions: Number of regions, at most as many as a photo has.
        """
        every = self.photos.tokens.shape[1]
        kept = np.arange(regions) * every // regions
        return replace(self, photos=self.photos._replace(tokens=self.photos.tokens[:, kept]))


def find_source(path: Path | None = None) -> Source:
    """Read an index, or make the stand-in.

    Args:
        path: Path of an index, or None for `DEFAULT_SOURCE` if it exists and the stand-in
            otherwise.
    """
    if path is None and not (DEFAULT_SOURCE / "CURRENT").exists():
        return stand_in_source()
    return index_source(path or DEFAULT_SOURCE)


def index_source(path: Path, *, as_stored: bool = False) -> Source:
    """Read the photos with captions of an index, as they were when it was built.

    A hubness correction of the index is left out: its biases are no part of an embedding.

    Args:
        path: Path of an index of photos and of texts that refer to their photo, with the sizes
            `EMBEDDING_DIM` and `TOKEN_DIM`.
        as_stored: Whether to keep the regions, of which all photos have as many. Otherwise they are
            resampled to a grid of 7 x 7, which is as many as a ViT of patches of 32 px has.

    Raises:
        SearchIndexError: If there is no such index, or it is damaged.
        ConfigError: If the sizes differ, or the index has no captions.
    """
    folder = generation_folder(path, live_generation(path))
    manifest = read_manifest(folder)
    if manifest.images is None or manifest.texts is None:
        raise ConfigError(f"{path}: expected an index of photos and their captions")
    found = (manifest.images.embedding_dim, manifest.images.token_dim)
    if found != (EMBEDDING_DIM, TOKEN_DIM):
        expected = f"embeddings of {EMBEDDING_DIM} and tokens of {TOKEN_DIM} values"
        raise ConfigError(f"{path}: expected {expected}, got {found[0]} and {found[1]}")
    images = open_collection(folder, "images", manifest.images)
    texts = open_collection(folder, "texts", manifest.texts)
    with closing(images.items), closing(texts.items):
        captions_of = _captions_by_photo(texts)
        ids = images.items.by_rows(range(images.entry.count))
        rows = np.array([item.row for item in ids if item.id in captions_of], dtype=np.int64)
        if len(rows) == 0:
            raise ConfigError(f"{path}: expected texts that say whose captions they are, got none")
        regions = images.tokens.read(rows).values.reshape(len(rows), -1, TOKEN_DIM)
        return Source(
            name=str(path),
            photos=Photos(
                without_biases(images.embeddings[rows], EMBEDDING_DIM),
                regions if as_stored else _on_grid(regions),
            ),
            captions=[_of_usual_length(captions_of[ids[row].id]) for row in rows],
            ids=[ids[row].id for row in rows],
        )


def stand_in_source() -> Source:
    """Make photos and captions with the statistics of 1,000 photos of Flickr8k.

    A photo is a point z of 48 dimensions: one of 150 cluster centres plus what is its own. All
    else are linear maps of z around a mean, plus noise. Measured on the real photos, and kept: the
    spectrum of the embeddings (a factor of 0.92 from each principal direction to the next), the
    length of their mean (0.70) and of the regions' (0.88), how far captions and words lean to
    their photos, and the share of alignment's top 10 that is among 10 and 20 candidates (0.79 and
    0.95; 0.79 and 0.96 are real). For that the regions of a photo are more alike than real ones
    (cosine 0.99; 0.95), and at 100,000 photos fewer candidates are enough (120; 220).
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
    regions = 0.88 * mean + (0.41 * z[:, None] + 0.14 * local) @ to_token
    noise = 0.7 * spectrum * normal(len(said), _STAND_IN_WORDS, dims)
    words = -0.11 * mean + 0.82 * alignment[-1] + 0.2 * (said[:, None] + noise) @ to_token
    captions = [
        Caption(*caption) for caption in zip(unit_rows(texts), unit_rows(words), strict=True)
    ]
    return Source(
        name="statistical stand-in (no index of real photos at hand)",
        photos=Photos(unit_rows(embeddings), _on_grid(unit_rows(regions))),
        captions=[
            captions[start : start + _STAND_IN_CAPTIONS]
            for start in range(0, len(captions), _STAND_IN_CAPTIONS)
        ],
    )


def _captions_by_photo(texts: StoredCollection) -> dict[str, list[Caption]]:
    rows = np.arange(texts.entry.count, dtype=np.int64)
    block = texts.tokens.read(rows)
    words = np.split(block.values, np.cumsum(block.lengths)[:-1])
    captions: dict[str, list[Caption]] = {}
    for item in texts.items.by_rows(range(texts.entry.count)):
        if item.image_id is not None:
            embedding = without_biases(texts.embeddings[item.row], EMBEDDING_DIM)
            caption = Caption(embedding, words[item.row])
            captions.setdefault(item.image_id, []).append(caption)
    return captions


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


def write_store(
    folder: Path, tokens: NDArray[np.float32], lengths: NDArray[np.int64], dtype: TokenDtype
) -> TokenStore:
    """Write one of this project's token forms as in an index, and map it.

    Random directions have no clusters: the first tokens again and again change no time.
    """
    folder.mkdir()
    some = tokens[: 256 * 39]
    codec = TokenCodec.train(dtype, some)
    packed = codec.pack(some)
    count = int(lengths.sum())
    packed = packed.take(np.arange(count) % packed.count)
    for array in codec.arrays:
        values: NDArray[Any] = getattr(packed, array.field)
        write_npy(folder / FILE_OF[array.field], array.dtype, values.shape, [values])
    if codec.centroids is not None:
        np.save(folder / CENTROIDS, codec.centroids)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    write_npy(folder / OFFSETS, np.int64, offsets.shape, [offsets])
    return TokenStore.open(folder, len(lengths), count, TOKEN_DIM, dtype)


def unit_vectors(count: int, seed: int) -> NDArray[np.float32]:
    """Draw random unit vectors, (count, TOKEN_DIM)."""
    random = np.random.default_rng(seed)
    return unit_rows(random.standard_normal((count, TOKEN_DIM), dtype=np.float32))
