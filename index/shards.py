"""A shard: some consecutive items, encoded and on disk; what a build can be resumed from.

shard-00000/
  embeddings.npy   (items, d_match) float32
  tokens.npy       (tokens, d_align) in the stored form, scales.npy beside it for int8
  lengths.npy      (items,) int64, number of tokens of each item
  shard.json       which items these are, and which were left out
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin.atomic import atomic_folder
from aladin.encoding import Encoding
from aladin.progress import Progress
from index.item_encoders import ItemEncoder, LeftOut, Prepared, prepared_batches
from index.settings import BuildSettings
from index.stage_seconds import StageSeconds
from index.token_store import SCALES, TOKENS, PackedTokens, pack

EMBEDDINGS, LENGTHS, CONTENTS = "embeddings.npy", "lengths.npy", "shard.json"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A finished shard.

    Attributes:
        folder: of its files.
        rows: of its items in the build's input.
        sizes_px: width and height of each photo; None for texts.
        left_out: items that could not be used.
    """

    folder: Path
    rows: list[int]
    sizes_px: list[tuple[int, int] | None]
    left_out: list[LeftOut]

    def array(self, name: str) -> NDArray[Any]:
        """Read one of the arrays."""
        return np.load(self.folder / name, allow_pickle=False)


def read_shard(folder: Path) -> Shard | None:
    """Return a shard, or None if it was not finished."""
    if not folder.is_dir():
        return None
    data = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
    return Shard(
        folder=folder,
        rows=data["rows"],
        sizes_px=[None if size is None else (size[0], size[1]) for size in data["sizes_px"]],
        left_out=[LeftOut(*entry) for entry in data["left_out"]],
    )


def write_shard(
    folder: Path,
    encoder: ItemEncoder,
    items: Sequence[Any],
    rows: range,
    settings: BuildSettings,
    progress: Progress,
    seconds: StageSeconds,
) -> None:
    """Encode some items; the folder appears when all of it is on the disk.

    Args:
        folder: to be written.
        encoder: of the items.
        items: all items of the side.
        rows: which of them.
        settings: of the build.
        progress: advanced batch by batch.
        seconds: gets the time spent reading, encoding and writing.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    kept: list[Prepared] = []
    left_out: list[LeftOut] = []
    embeddings: list[NDArray[np.float32]] = []
    tokens: list[PackedTokens] = []
    lengths: list[NDArray[np.int64]] = []
    batches = prepared_batches(encoder, items, rows, settings.batch_size, settings.readers)
    while True:
        with seconds.measure("read"):
            batch = next(batches, None)
        if batch is None:
            break
        usable = [each for each in batch if isinstance(each, Prepared)]
        left_out += [each for each in batch if isinstance(each, LeftOut)]
        if usable:
            with seconds.measure("encode"):
                encoding = encoder.encode(usable).to("cpu")
            # Sizes are all that is needed of a prepared item from here on.
            kept += [prepared._replace(data=None) for prepared in usable]
            embeddings.append(encoding.embedding.numpy())
            tokens.append(pack(_real_tokens(encoding), settings.token_dtype))
            lengths.append(encoding.mask.sum(dim=1).numpy())
        progress.advance(len(batch))
        progress.note(**seconds.notes())
    with seconds.measure("write"), atomic_folder(folder) as partial:
        if kept:
            np.save(partial / EMBEDDINGS, np.concatenate(embeddings))
            np.save(partial / LENGTHS, np.concatenate(lengths))
            np.save(partial / TOKENS, np.concatenate([part.values for part in tokens]))
            scales = [part.scales for part in tokens if part.scales is not None]
            if scales:
                np.save(partial / SCALES, np.concatenate(scales))
        contents = {
            "rows": [prepared.row for prepared in kept],
            "sizes_px": [prepared.size_px for prepared in kept],
            "left_out": left_out,
        }
        (partial / CONTENTS).write_text(json.dumps(contents), encoding="utf-8")


def _real_tokens(encoding: Encoding) -> NDArray[np.float32]:
    """Return the batch's real tokens, one item's after the other's."""
    real: NDArray[np.float32] = encoding.tokens[encoding.mask].to(torch.float32).numpy()
    return real
