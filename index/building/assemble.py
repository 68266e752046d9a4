"""From the shards of one side to the stream that a generation is written from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from index.building.catalogue import Catalogue
from index.building.generation_writer import SideSource
from index.building.shards import EMBEDDINGS, LENGTHS, ROWS, SIZES_PX, Shard
from index.building.side_writer import EncodedPart
from index.building.source_items import stored_form
from index.settings import TokenDtype
from index.tokens.codec import TokenCodec
from index.tokens.sample import codec_for


def side_source(
    shards: Sequence[Shard],
    query_shards: Sequence[Shard],
    catalogue: Catalogue,
    dtype: TokenDtype,
    batch_size: int,
) -> SideSource:
    """Describe one side of a generation by its shards.

    How the items are spread over the shards makes no difference to the generation.

    Args:
        shards: in order; at least one.
        query_shards: of the other side, whose tokens are like those that will ask; may be none.
        catalogue: of the items.
        dtype: of the tokens to be stored.
        batch_size: items that went through the network together.

    Raises:
        ConfigError: a codebook is to be made of no tokens.
    """
    codec = shards[0].format.codec
    if codec.dtype != dtype:
        codec = codec_for(
            dtype,
            [shard.tokens().values for shard in shards],
            [shard.tokens().values for shard in query_shards],
        )
    return SideSource(
        embedding_dim=shards[0].format.embedding_dim,
        codec=codec,
        parts=_parts(shards, catalogue, codec, batch_size),
        left_out=[entry for shard in shards for entry in shard.left_out],
        count=sum(len(shard.array(ROWS)) for shard in shards),
    )


def _parts(
    shards: Sequence[Shard], catalogue: Catalogue, codec: TokenCodec, batch_size: int
) -> Iterator[EncodedPart]:
    """Yield a part for each batch of the input, wherever shards begin and end.

    The rounding of a matrix product, and with it the centroid of a token, may depend on how many
    tokens are packed together.
    """
    for shard in shards:
        kept = shard.format.codec
        rows, sizes_px, boxes = shard.array(ROWS), shard.array(SIZES_PX), shard.boxes()
        embeddings, lengths, tokens = shard.array(EMBEDDINGS), shard.array(LENGTHS), shard.tokens()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        batches = rows // batch_size
        ends = [*(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(rows)] if len(rows) else []
        start = 0
        for end in ends:
            packed = tokens.take(slice(int(offsets[start]), int(offsets[end])))
            if codec is not kept:
                packed = codec.pack(kept.unpack(packed))
            first = int(rows[start])
            items = catalogue.items(range(first, int(rows[end - 1]) + 1))
            places = (rows[start:end] - first).tolist()
            sizes = sizes_px[start:end].tolist()
            yield EncodedPart(
                items=[
                    stored_form(items[place], (width, height) if width else None, of_item)
                    for place, (width, height), of_item in zip(
                        places, sizes, boxes[start:end], strict=True
                    )
                ],
                embeddings=embeddings[start:end],
                tokens=packed,
                lengths=lengths[start:end],
            )
            start = end
