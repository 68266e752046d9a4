"""Copies a generation in a vector database into an index of files: the inverse of a push."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from aladin_index.engines.client import EngineClient, EngineItem
from aladin_index.engines.record import GenerationRecord
from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.models import model_folder
from aladin_index.generations.collection_writer import CollectionSource, EncodedPart
from aladin_index.generations.compact import settings_of
from aladin_index.generations.writer import install_model, write_generation
from aladin_index.tokens.codec import PackedTokens
from aladin_network.types import Progress, Target

# As many items have 13 MB of tokens in float16, and are one message of most servers.
_ITEMS_AT_A_TIME = 1000

# Row of each item by its id.
Rows = dict[str, int]


def rows_of(client: EngineClient, generation: int, target: Target) -> Rows:
    """List the items of a collection with their rows.

    Raises:
        EngineUnavailableError: If the vector database does not respond.
    """
    parts = client.items(generation, target)
    return {item.id: item.row for part in parts for item in part}


def pull_generation(
    client: EngineClient,
    record: GenerationRecord,
    rows: Mapping[Target, Rows],
    folder: Path,
    root: Path,
    progress: Progress,
) -> None:
    """Copy a generation to an index of files, in the order of the rows, with its encodings.

    Args:
        client: Client of the vector database.
        record: Record of the generation.
        rows: Its items, see `rows_of`; those that are deleted meanwhile are left out.
        folder: Folder that represents the index, with its model.
        root: Folder of the new index.
        progress: Receives the progress in items.

    Raises:
        InputError: If a collection has no item.
        EngineUnavailableError: If the vector database does not respond.
        IndexWriteError: If the disk is full or cannot be written.
    """
    manifest = record.manifest
    sides: dict[Target, CollectionSource] = {}
    for target, entry in manifest.sides.items():
        ids = sorted(rows[target], key=rows[target].__getitem__)
        sides[target] = CollectionSource(
            embedding_dim=entry.embedding_dim,
            codec=record.codecs[target],
            parts=_parts(client, manifest.generation, target, ids),
            count=len(ids),
            tuning=entry.tuning,
        )
    with disk_errors(root), only_builder(root):
        install_model(root, model_folder(folder, manifest.model.id), manifest.model)
        write_generation(
            root,
            sides,
            manifest.model,
            # The first stage is the engine's; that of the copy is not searched.
            replace(settings_of(manifest), ann="exact", memory_budget_bytes=None),
            manifest.fingerprint,
            progress,
            made_by="import",
            calibration=manifest.calibration,
        )


def _parts(
    client: EngineClient, generation: int, target: Target, ids: Sequence[str]
) -> Iterator[EncodedPart]:
    for start in range(0, len(ids), _ITEMS_AT_A_TIME):
        asked = ids[start : start + _ITEMS_AT_A_TIME]
        found = client.fetch(generation, target, asked, with_embeddings=True, with_tokens=True)
        place_of = {item_id: place for place, item_id in enumerate(asked)}
        found.sort(key=lambda entry: place_of[entry.item.id])
        if found:
            yield _part(found)


def _part(entries: Sequence[EngineItem]) -> EncodedPart:
    embeddings = [entry.embedding for entry in entries if entry.embedding is not None]
    tokens = [entry.tokens for entry in entries if entry.tokens is not None]
    assert len(embeddings) == len(tokens) == len(entries)  # as was asked for
    return EncodedPart(
        [entry.item for entry in entries],
        np.stack(embeddings).astype(np.float32),
        PackedTokens.concatenate(tokens),
        np.array([each.count for each in tokens], dtype=np.int64),
    )
