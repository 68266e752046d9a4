"""Synthetic encodings for any number of photos, modelled on real ones, and indexes of them.

Photos are drawn in the joint principal space of the real photos' embeddings and tokens: a point is
a real photo, mixed with a near neighbour, plus noise with the data's own covariance. Embedding and
tokens come from the same point, so that they agree as in real data, where the embedding was
distilled from the tokens. Every photo depends on the seed and on its number alone: the first
thousand of a million are the thousand of a thousand.

`benchmarks.lib.synthetic_sources` selects the real photos, and
``python -m benchmarks.search.synthetic_check`` compares the result with them. An index of synthetic
photos is built by the import of ready-made encodings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from aladin_index.encode.encoded import PackedBatch
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.writer import NewGeneration, write_generation
from aladin_index.items.tables import StoredItem
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import codec_for
from aladin_network.types import Target
from benchmarks.lib.small_collection import new_index, photo_row, small_model, text_row
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, TOKEN_DIM, Photos, Source

# Principal directions are kept until they hold this share of the variance.
_VARIANCE_KEPT = 0.99
# Fraction of a photo's variance that is noise; the rest comes from real photos. Found by matching
# the cosines to the 1st, 10th and 100th neighbour among 1,000 photos, see the check.
_NOISE = 0.25
# Number of nearest photos, one of which is mixed into a photo with a weight of at most half.
_PARTNERS = 10
# Number of photos drawn with one random generator. It is part of the format, because it determines
# the draws.
_BLOCK = 512

# Number of texts in the index's text collection. The first stage is calibrated with them, as in
# real use; measurements draw other texts.
_TEXTS = 2000
_CODEC_SAMPLE_PHOTOS = 1024
# Batches whose tokens are packed while others are drawn and written.
_PACKERS = 2


class TextQueries(NamedTuple):
    """Texts to search photos with.

    Attributes:
        embeddings: (queries, 256) float32, L2-normalised.
        words: Words of each query, (words, 128) float32, L2-normalised.
        photos: (queries,) number of the photo that each was made for.
    """

    embeddings: NDArray[np.float32]
    words: list[NDArray[np.float32]]
    photos: NDArray[np.int64]


class _PrincipalSpace:
    """The principal directions in which embeddings and tokens of real photos vary together.

    Attributes:
        mean: (256 + regions * 128,) of both, each half scaled to a variance of 1.
        directions: (kept, 256 + regions * 128).
        coordinates: (real photos, kept).
        spread: (kept,) standard deviations.
        neighbours: (real photos, partners) nearest real photos.
        stretch: Factor by which mixtures of two neighbours are closer to the mean than photos.
    """

    def __init__(self, photos: Photos) -> None:
        count = len(photos.embeddings)
        embeddings = torch.from_numpy(photos.embeddings)
        flat = torch.from_numpy(photos.tokens).reshape(count, -1)
        # Both halves have the same weight, because otherwise the tokens would dominate the
        # embedding.
        joint = torch.cat(
            [half / half.var(dim=0).sum().sqrt() for half in (embeddings, flat)], dim=1
        )
        self.mean = joint.mean(dim=0)
        centred = joint - self.mean
        # There are fewer photos than values: the small Gram matrix has the same spectrum.
        variances, vectors = torch.linalg.eigh((centred @ centred.T).double())
        variances, vectors = variances.flip(0), vectors.flip(1)
        share = variances.cumsum(0) / variances.sum()
        kept = int(torch.searchsorted(share, _VARIANCE_KEPT)) + 1
        lengths = variances[:kept].sqrt()
        self.coordinates = (vectors[:, :kept] * lengths).float()
        self.directions = self.coordinates.T @ centred / lengths.float().square().unsqueeze(1)
        self.spread = (lengths / np.sqrt(count)).float()
        similarity = embeddings @ embeddings.T
        similarity.fill_diagonal_(-2)
        self.neighbours = similarity.topk(min(_PARTNERS, count - 1)).indices.numpy()
        own = self.coordinates.square().sum(dim=1).mean()
        partners = self.coordinates[self.neighbours]  # (photos, partners, kept)
        shared = torch.einsum("pk,pnk->pn", self.coordinates, partners).mean()
        # For weights w uniform in 0.5 to 1: E w^2 + E (1-w)^2 = 2/3 and 2 E w(1-w) = 1/3.
        self.stretch = float((own / (2 / 3 * own + 1 / 3 * shared)).sqrt())


class SyntheticPhotos:
    """Draws photos and matching queries."""

    def __init__(self, source: Source, seed: int = 0) -> None:
        """Create a generator of photos from a source.

        Args:
            source: Source that the photos are made from.
            seed: Seed of all random draws.
        """
        self.source = source
        self._seed = seed

    def photos(self, count: int, batch: int = 4 * _BLOCK) -> Iterator[Photos]:
        """Yield the first `count` photos in batches.

        Args:
            count: Number of photos.
            batch: Number of photos at a time, 25 KB each with 49 regions; rounded up to whole
                blocks.
        """
        return map(self._photos_at, self._drawn(count, batch))

    def embeddings(self, count: int) -> Iterator[NDArray[np.float32]]:
        """Yield the embeddings of the first `count` photos alone, in a tenth of the time."""
        space = self._space
        for points in self._drawn(count, 4 * _BLOCK):
            half = torch.addmm(
                space.mean[:EMBEDDING_DIM], points, space.directions[:, :EMBEDDING_DIM]
            )
            yield F.normalize(half, dim=1).numpy()

    def _drawn(self, count: int, batch: int) -> Iterator[Float[Tensor, "photos kept"]]:
        blocks = -(-batch // _BLOCK)
        for start in range(0, count, blocks * _BLOCK):
            end = min(start + blocks * _BLOCK, count)
            numbers = range(start // _BLOCK, -(-end // _BLOCK))
            points = torch.cat([self._points(number) for number in numbers])
            yield points[: end - start]

    def queries(self, queries: int, photos: int, seed: int = 0) -> TextQueries:
        """Draw texts that match some of the first `photos` photos.

        A text is a real caption of the real photo that most of its photo is made of, unchanged:
        what is asked for is as real as it can be.

        Args:
            queries: Number of texts.
            photos: Number of photos to choose from.
            seed: Seed; different seeds give different texts.
        """
        random = np.random.default_rng([self._seed, 1, seed])
        chosen = random.integers(0, photos, queries)
        embeddings = np.empty((queries, EMBEDDING_DIM), dtype=np.float32)
        words: list[NDArray[np.float32]] = []
        for place, photo in enumerate(chosen.tolist()):
            bases = self._bases(self._generator(photo // _BLOCK))
            captions = self.source.captions[int(bases[photo % _BLOCK])]
            caption = captions[int(random.integers(len(captions)))]
            embeddings[place] = caption.embedding
            words.append(caption.words)
        return TextQueries(embeddings, words, chosen)

    @cached_property
    def _space(self) -> _PrincipalSpace:
        return _PrincipalSpace(self.source.photos)

    def _generator(self, block: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, 0, block])

    def _bases(self, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw the real photos that a block's photos are mainly made from; always drawn first."""
        return random.integers(0, len(self.source.photos.embeddings), _BLOCK)

    def _points(self, block: int) -> Float[Tensor, "photos kept"]:
        """Draw the photos of a block, in the principal space."""
        random, space = self._generator(block), self._space
        bases = self._bases(random)
        partners = space.neighbours[bases, random.integers(0, space.neighbours.shape[1], _BLOCK)]
        weight = torch.from_numpy(random.uniform(0.5, 1, _BLOCK).astype(np.float32)).unsqueeze(1)
        mixed = weight * space.coordinates[bases] + (1 - weight) * space.coordinates[partners]
        normal = random.standard_normal(mixed.shape, dtype=np.float32)
        noise = space.spread * torch.from_numpy(normal)
        return (1 - _NOISE) ** 0.5 * space.stretch * mixed + _NOISE**0.5 * noise

    def _photos_at(self, points: Float[Tensor, "photos kept"]) -> Photos:
        # Each half is scaled, which the normalisation undoes.
        joint = torch.addmm(self._space.mean, points, self._space.directions)
        embeddings = F.normalize(joint[:, :EMBEDDING_DIM], dim=1)
        tokens = joint[:, EMBEDDING_DIM:].reshape(len(points), -1, TOKEN_DIM)
        return Photos(embeddings.numpy(), F.normalize(tokens, dim=2).numpy())


def write_synthetic_index(
    root: Path, photos: SyntheticPhotos, count: int, settings: BuildSettings
) -> dict[str, float]:
    """Build an index of the first `count` photos, and of some texts.

    Args:
        root: Folder of the index; new.
        photos: Source of the photos.
        count: Number of photos.
        settings: Settings of the first stage and of the tokens.

    Returns:
        Seconds by stage: "draw" makes the photos, which a real import would read; "pack" brings
        tokens into their stored form, as far as it was waited for; "write" and "ann" are the
        writer's.
    """
    seconds = StageSeconds()
    with new_index(root, small_model(EMBEDDING_DIM, TOKEN_DIM)) as model:
        first = next(iter(photos.photos(min(count, _CODEC_SAMPLE_PHOTOS))))
        sample = first.tokens.reshape(-1, TOKEN_DIM)
        texts = photos.queries(_TEXTS, count)
        # As in a build, each collection is quantized using the queries of the other one.
        codec = codec_for(settings.token_dtype, [sample], texts.words)
        text_codec = codec_for(settings.token_dtype, texts.words, [sample])
        collections: dict[Target, CollectionSource] = {
            "images": CollectionSource(
                embedding_dim=EMBEDDING_DIM,
                codec=codec,
                parts=_photo_parts(photos, count, codec, seconds),
            ),
            "texts": CollectionSource(
                embedding_dim=EMBEDDING_DIM,
                codec=text_codec,
                parts=[_text_part(texts, text_codec)],
            ),
        }
        write_generation(
            root,
            NewGeneration(
                collections=collections, model=model, settings=settings, fingerprint="synthetic"
            ),
            seconds=seconds,
        )
    # The parts are generated while they are written.
    made = seconds.seconds["draw"] + seconds.seconds["pack"]
    seconds.add("write", -made)
    return dict(seconds.seconds)


def _photo_parts(
    photos: SyntheticPhotos, count: int, codec: TokenCodec, seconds: StageSeconds
) -> Iterator[PackedBatch]:
    batches = photos.photos(count)
    packing = StageSeconds()

    def pack(batch: Photos) -> PackedTokens:
        with packing.measure("pack"):
            return codec.pack(batch.tokens.reshape(-1, TOKEN_DIM))

    written = 0
    ahead: deque[tuple[Photos, Future[PackedTokens]]] = deque()
    with ThreadPoolExecutor(_PACKERS) as pool:
        while written < count:
            with seconds.measure("draw"):
                for batch in islice(batches, 1 + _PACKERS - len(ahead)):
                    ahead.append((batch, pool.submit(pack, batch)))
            batch, packed = ahead.popleft()
            with seconds.waiting_for(packing):
                tokens = packed.result()
            numbers = range(written, written + len(batch.embeddings))
            lengths = np.full(len(numbers), batch.tokens.shape[1], dtype=np.int64)
            items = [synthetic_item(number) for number in numbers]
            yield PackedBatch(items, batch.embeddings, tokens, lengths)
            written = numbers.stop


def _text_part(texts: TextQueries, codec: TokenCodec) -> PackedBatch:
    items = [
        text_row(place, f"a text for photo {photo}", f"photo-{photo}", {})
        for place, photo in enumerate(texts.photos.tolist())
    ]
    lengths = np.array([len(words) for words in texts.words], dtype=np.int64)
    packed = codec.pack(np.concatenate(texts.words))
    return PackedBatch(items, texts.embeddings, packed, lengths)


def synthetic_item(number: int) -> StoredItem:
    """Return the stored data of photo `number`, without its encodings."""
    return photo_row(
        number,
        f"photo-{number}",
        {"year": 2000 + number % 20, "number": number, "city": "Pisa"},
        uri=f"album/{number}.jpg",
        path=f"/photos/album/{number}.jpg",
        text="two dogs run on the green grass",
        size_px=(640, 480),
    )
