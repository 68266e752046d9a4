"""From shards to the files of one side of a generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.atomic import write_json
from aladin.progress import Progress
from index.ann import AnnIndex, build_ann, choose_factory, write_ann
from index.ann_recall import calibrate
from index.item_encoders import LeftOut
from index.items import StoredItem, write_items
from index.manifest import AnnEntry, SideEntry
from index.npy import map_npy, write_npy
from index.settings import BuildSettings
from index.shards import EMBEDDINGS as SHARD_EMBEDDINGS
from index.shards import LENGTHS, Shard
from index.side import ANN, EMBEDDINGS, ITEMS, LEFT_OUT
from index.source_items import ImageItem, SourceItem
from index.token_store import OFFSETS, SCALES, TOKENS


@dataclass(frozen=True, kw_only=True)
class SideShards:
    """The finished shards of one side, those without a usable item left aside.

    Attributes:
        shards: in order; at least one.
        count: number of items.
        left_out: items that could not be used.
        embedding_dim: size of an embedding.
        token_dim: size of a token.
        lengths: (items,) int64, number of tokens of each item.
    """

    shards: list[Shard]
    count: int
    left_out: list[LeftOut]
    embedding_dim: int
    token_dim: int
    lengths: NDArray[np.int64]

    @classmethod
    def gather(cls, shards: Sequence[Shard]) -> SideShards:
        """Add up shards, at least one of which has a usable item."""
        filled = [shard for shard in shards if shard.rows]
        return cls(
            shards=filled,
            count=sum(len(shard.rows) for shard in filled),
            left_out=[entry for shard in shards for entry in shard.left_out],
            embedding_dim=filled[0].array(SHARD_EMBEDDINGS).shape[1],
            token_dim=filled[0].array(TOKENS).shape[1],
            lengths=np.concatenate([shard.array(LENGTHS) for shard in filled]),
        )

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """Read one of the arrays shard by shard."""
        return (shard.array(name) for shard in self.shards)


def write_arrays(
    folder: Path, side: SideShards, items: Sequence[SourceItem], settings: BuildSettings
) -> None:
    """Write embeddings, tokens and items of one side, and what was left out of it.

    Args:
        folder: of the side.
        side: its shards.
        items: all that the build was given.
        settings: of the build.

    Raises:
        OSError: the disk is full, or cannot be written.
        sqlite3.Error: the same, met by the database.
    """
    token_count = int(side.lengths.sum())
    shape = (side.count, side.embedding_dim)
    write_npy(folder / EMBEDDINGS, np.float32, shape, side.parts(SHARD_EMBEDDINGS))
    tokens_shape = (token_count, side.token_dim)
    write_npy(folder / TOKENS, settings.token_dtype, tokens_shape, side.parts(TOKENS))
    if settings.token_dtype == "int8":
        write_npy(folder / SCALES, np.float32, (token_count,), side.parts(SCALES))
    offsets = np.concatenate([[0], np.cumsum(side.lengths)])
    write_npy(folder / OFFSETS, np.int64, (side.count + 1,), [offsets])
    write_items(folder / ITEMS, _stored_items(side, items))
    write_json(folder / LEFT_OUT, side.left_out)


def write_first_stage(
    folder: Path,
    side: SideShards,
    query_folder: Path,
    query_side: SideShards,
    settings: BuildSettings,
    progress: Progress,
) -> SideEntry:
    """Build, measure and write the ANN of one side, whose embeddings are written.

    Args:
        folder: of the side.
        side: its shards.
        query_folder: of the side whose embeddings serve as queries: the other one, as in a
            real search, else the same.
        query_side: its shards.
        settings: of the build.
        progress: advanced with the vectors that are in the ANN.

    Raises:
        ConfigError: FAISS cannot build what the settings ask for.
        OSError: the disk is full, or cannot be written.
    """
    embeddings = _embeddings(folder, side)
    factory = choose_factory(settings.ann, side.count)
    index = build_ann(factory, embeddings, progress)
    recall_at = min(settings.default_candidates, side.count)
    queries = _embeddings(query_folder, query_side)
    chosen = calibrate(AnnIndex(index, None), embeddings, queries, recall_at)
    write_ann(folder / ANN, index)
    return SideEntry(
        count=side.count,
        left_out=len(side.left_out),
        embedding_dim=side.embedding_dim,
        token_dim=side.token_dim,
        token_count=int(side.lengths.sum()),
        token_dtype=settings.token_dtype,
        ann=AnnEntry(
            factory=factory,
            search_width=chosen.search_width,
            recall=chosen.recall,
            recall_at=recall_at,
            recall_queries=chosen.queries,
        ),
    )


def _embeddings(folder: Path, side: SideShards) -> NDArray[np.float32]:
    return map_npy(folder / EMBEDDINGS, np.float32, (side.count, side.embedding_dim))


def _stored_items(side: SideShards, items: Sequence[SourceItem]) -> Iterator[StoredItem]:
    row = 0
    for shard in side.shards:
        for source_row, size_px in zip(shard.rows, shard.sizes_px, strict=True):
            item = items[source_row]
            width_px, height_px = size_px or (None, None)
            photo = item if isinstance(item, ImageItem) else None
            yield StoredItem(
                row=row,
                id=item.id,
                uri=photo.uri if photo else None,
                path=str(photo.path) if photo else None,
                text=item.text,
                image_id=None if isinstance(item, ImageItem) else item.image_id,
                width_px=width_px,
                height_px=height_px,
                metadata=dict(item.metadata),
                offset=photo.offset if photo else 0,
                length=photo.length if photo else None,
            )
            row += 1
