"""A library as data for training: its photos with what people wrote about them, and its model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aladin_index.format.manifest import live_model_folder
from aladin_index.items.tables import StoredItem
from aladin_index.open import open_backend
from aladin_index.search.collection import ListOrder
from aladin_network.checkpoint_files import has_graphs_alone, read_config
from aladin_network.errors import ConfigError, InputError
from aladin_network.files import atomic_file
from aladin_service.library.libraries import find_index

# Fewer say nothing about a model that knows photos already; a few hundred are a beginning.
_LEAST_PHOTOS = 100
# Of so many photos with texts, in their order of addition, the last one is for validation.
_VALIDATION = 10
# Where people write about a photo, beside its caption.
_FIELDS = ("title", "description")
_ITEMS_AT_A_TIME = 1000


class TrainingData(NamedTuple):
    """What a library gives for training.

    Attributes:
        file: JSON lines of photos, captions and splits.
        checkpoint: The library's model.
    """

    file: Path
    checkpoint: Path

    @property
    def overrides(self) -> list[str]:
        """The settings of a recipe that say so."""
        return [f"data.source={self.file}", f"start={self.checkpoint}"]


def library_data(name: str, file: Path) -> TrainingData:
    """Write the photos of a library that have texts as a data set.

    Args:
        name: Name of a library, one of its folders, or an index.
        file: File to write; one that is there, of a run that is resumed, is kept.

    Raises:
        ConfigError: If torch cannot train the library's model.
        InputError: If too few photos have texts.
        SearchIndexError: If there is no such index, or it cannot be read.
    """
    index = find_index(name)
    checkpoint = live_model_folder(index)
    if has_graphs_alone(checkpoint):
        source = read_config(checkpoint).model.image_encoder.source
        raise ConfigError(
            f"{name}: its model {source} has graphs alone, which cannot be trained; make a library"
            " with a model that has weights, such as `aladin photos FOLDER --model"
            " openai/clip-vit-base-patch32`, and train with that"
        )
    data = TrainingData(file.absolute(), checkpoint)
    if file.exists():
        return data
    total, lines = 0, list[str]()
    for item in _photos(index):
        total += 1
        captions = _captions(item)
        if captions and item.path is not None and item.length is None:
            split = "val" if len(lines) % _VALIDATION == _VALIDATION - 1 else "train"
            record = {"image": str(index / item.path), "captions": captions, "split": split}
            lines.append(json.dumps(record, ensure_ascii=False))
    if len(lines) < _LEAST_PHOTOS:
        raise InputError(
            f"{name}: expected at least {_LEAST_PHOTOS} photos with a title, a description or a"
            f" caption to train with, got {len(lines)} of {total}"
        )
    with atomic_file(file) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return data


def _photos(index: Path) -> Iterator[StoredItem]:
    """Yield the photos of an index in the order of their addition."""
    photos = open_backend(index).collection("images")
    after, order = None, ListOrder(descending=False)
    while True:
        page = photos.list_items(order, after, _ITEMS_AT_A_TIME)
        yield from page.items
        if page.is_last:
            return
        after = page.items[-1].id


def _captions(item: StoredItem) -> list[str]:
    """Return what was written about a photo, each text once; the name of its file is none."""
    texts = [item.text, *(item.metadata.get(field) for field in _FIELDS)]
    names = {item.id, Path(item.id).name, Path(item.id).stem}
    said = [each.strip() for each in texts if isinstance(each, str)]
    return [text for text in dict.fromkeys(said) if text and text not in names]
