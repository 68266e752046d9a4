"""Indexes of given encodings, written without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.disk import only_builder
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.writer import (
    NewGeneration,
    describe_model,
    install_model,
    write_generation,
)
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.checkpoint_files import read_model_id
from aladin_network.types import Target, TokenDtype


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
