"""An index of made-up arrays, with as much of the format as benchmarks of stored tokens read."""

import sqlite3
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Normalise the last axis."""
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def write_made_index(
    root: Path, regions: NDArray[np.float32], words: NDArray[np.float32], captions: int
) -> None:
    """Write photos and their captions, with the same embedding for a photo and its captions.

    Args:
        root: Folder of the index.
        regions: (photos, regions, dim), stored in float16.
        words: (photos * captions, words, dim), the captions of each photo one after the other.
        captions: Captions of a photo.
    """
    embeddings = unit(np.random.default_rng(1).standard_normal((len(regions), 8)))
    for target, tokens, own in (
        ("images", regions, embeddings),
        ("texts", words, unit(np.repeat(embeddings, captions, axis=0) + 0.01)),
    ):
        folder = root / "generations" / "000001" / target
        folder.mkdir(parents=True)
        np.save(folder / "embeddings.npy", own)
        np.save(folder / "tokens.npy", tokens.reshape(-1, tokens.shape[-1]).astype(np.float16))
        np.save(folder / "offsets.npy", np.arange(len(tokens) + 1) * tokens.shape[1])
        with sqlite3.connect(folder / "items.sqlite") as database:
            database.execute("CREATE TABLE items (row INTEGER, id TEXT, image_id TEXT)")
            database.executemany(
                "INSERT INTO items VALUES (?, ?, ?)",
                [
                    (row, f"{target} {row}", f"images {row // captions}")
                    for row in range(len(tokens))
                ],
            )
        database.close()
    (root / "CURRENT").write_text("000001\n")
