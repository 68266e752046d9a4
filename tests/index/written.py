"""Made-up items, and indexes of given encodings, written without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.disk import only_builder
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import (
    NewGeneration,
    describe_model,
    install_model,
    write_generation,
)
from aladin_index.items.tables import StoredItem
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.checkpoint_files import read_model_id
from aladin_network.types import Target, TokenDtype


def made_up(ids: Sequence[str], seed: int = 0, **metadata: Sequence[Any]) -> ItemBatch:
    """Make up items to add: ``made_up(["a", "b"], seed=3, n=[1, 2])``.

    Embeddings and tokens fit `tiny_checkpoint`. The same id and seed give the same item.
    """
    embeddings, tokens, items = [], [], []
    for place, item_id in enumerate(ids):
        random = np.random.default_rng([seed, *item_id.encode()])
        vectors = random.standard_normal((1 + int(random.integers(1, 6)), 16))
        embeddings.append(vectors[0] / np.linalg.norm(vectors[0]))
        words = vectors[1:, :8]
        tokens.append(words / np.linalg.norm(words, axis=1, keepdims=True))
        described = {name: values[place] for name, values in metadata.items()}
        plain = StoredItem(-1, item_id, None, None, f"{item_id} {seed}", None, None, None, {})
        items.append(plain._replace(metadata=described))
    return ItemBatch(
        items=items,
        embeddings=np.array(embeddings, dtype=np.float32),
        tokens=np.concatenate(tokens).astype(np.float32),
        lengths=np.array([len(each) for each in tokens], dtype=np.int64),
    )


def write_index(
    root: Path,
    checkpoint_folder: Path,
    collections: Mapping[Target, ItemBatch],
    dtype: TokenDtype = "float16",
    settings: BuildSettings | None = None,
    **more: Any,
) -> int:
    """Write a generation of items; `more` is of `NewGeneration`. Returns its number."""
    sources: dict[Target, CollectionSource] = {}
    for target, new in collections.items():
        codec = TokenCodec.train(dtype, new.tokens)
        part = ItemBatch(new.items, new.embeddings, codec.pack(new.tokens), new.lengths)
        dim = new.embeddings.shape[1]
        sources[target] = CollectionSource(embedding_dim=dim, codec=codec, parts=[part])
    with only_builder(root):
        model = describe_model(checkpoint_folder, read_model_id(checkpoint_folder))
        install_model(root, checkpoint_folder, model)
        generation = NewGeneration(
            collections=sources,
            model=model,
            settings=settings or BuildSettings(),
            fingerprint="made up",
            **more,
        )
        return write_generation(root, generation)


class Held(NamedTuple):
    """What the live generation says of an item, whose row is 0 here."""

    item: StoredItem
    embedding: list[float]
    tokens: list[list[float]]


def contents(root: Path, target: Target = "images") -> dict[str, Held]:
    """Return what an index says of each live item, in the order of their rows."""
    with open_index(root, encodes=False) as index:
        collection = index.collection(target)
        rows = sorted(collection.items.ids(), key=lambda entry: entry[1])
        return {
            item_id: Held(
                collection.items.by_rows([row])[0]._replace(row=0),
                collection.embedding(row).tolist(),
                collection.tokens(row).tolist(),
            )
            for item_id, row in rows
        }


def file_bytes(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
