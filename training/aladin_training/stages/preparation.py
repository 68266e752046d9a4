"""A run that begins with the network of a checkpoint.

From a recipe to a network and its data, ready for the first stage.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from aladin_network.checkpoint import load_checkpoint, read_model_id
from aladin_network.config import ModelConfig
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel, text_encoder_class
from aladin_network.types import Progress
from aladin_training.adapters.parts import check_tuning
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import (
    PLAIN,
    check_regions,
    region_items,
    view_names,
    with_detector,
)
from aladin_training.config.recipe import Recipe, StartConfig
from aladin_training.data import Record, read_records
from aladin_training.data.regions import RegionStore, open_regions
from aladin_training.streaming.stream import PhotoStream, TarStream, open_stream
from aladin_training.tasks.joint import build_tasks


def load_start(start: StartConfig) -> AladinModel:
    """Load the network that a run begins with.

    Args:
        start: of the recipe.

    Raises:
        CheckpointError: it cannot be read.
        ConfigError: the recipe asks for another model.
    """
    folder = Path(start.checkpoint).expanduser()
    checkpoint = load_checkpoint(folder, frozen=start.frozen)
    _check_id(start, checkpoint.model_id)
    return checkpoint.model


def identified(recipe: Recipe) -> Recipe:
    """Return a recipe that knows which checkpoint it starts from, not only where it lies.

    Args:
        recipe: with or without a start.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        ConfigError: the recipe asks for another model.
    """
    if recipe.start is None:
        return recipe
    model_id = read_model_id(Path(recipe.start.checkpoint).expanduser())
    _check_id(recipe.start, model_id)
    return dataclasses.replace(recipe, start=dataclasses.replace(recipe.start, model_id=model_id))


def _check_id(start: StartConfig, model_id: str) -> None:
    if start.model_id not in (None, model_id):
        raise ConfigError(
            f"start: {start.checkpoint} holds the model {model_id[:12]}, "
            f"expected {str(start.model_id)[:12]}"
        )


class PreparedRun(NamedTuple):
    """A network and its data, before any stage.

    Attributes:
        model: with pretrained encoders, the rest at random.
        train_set: pairs to train on, or the stream of them.
        validation_set: pairs that choose the best weights.
    """

    model: AladinModel
    train_set: PairDataset | PhotoStream
    validation_set: PairDataset


def prepare_run(
    recipe: Recipe, progress: Progress, before_encoding: Callable[[], None] = lambda: None
) -> PreparedRun:
    """Check a recipe, build its network and find its data; stages encode what they need.

    Args:
        recipe: what is to be trained.
        progress: told of photos and captions.
        before_encoding: called when recipe and data have been read without fault, before any
            photo is.

    Raises:
        ConfigError: a stage names a loss that it cannot use, or cannot tune an encoder as it
            says.
        CheckpointError: an encoder, or the checkpoint of the start, cannot be loaded.
        DataError: the data cannot be used.
        RegionError: photos have no regions.
        InputError: the network reads photos and the recipe names regions, or the other way round.
    """
    for stage in recipe.stage:
        build_tasks(stage)
    torch.manual_seed(recipe.seed)
    regions = _regions(recipe)
    data = recipe.data
    train = _training_data(recipe, progress)
    validation_records = _read(recipe, data.validation_source or data.source, data.validation_split)
    model = _network(recipe, train, regions)
    for stage in recipe.stage:
        check_tuning(model, stage.tune)
    check_regions(model.image.encoder, regions)
    if regions is not None:
        assert not isinstance(train, TarStream)  # refused by `DataConfig`
        region_items([*train, *validation_records], model.image.encoder, regions)
    before_encoding()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    prepare = functools.partial(
        PairDataset.prepare,
        model=model,
        cache_root=Path(data.cache).expanduser(),
        precision=recipe.precision,
        progress=progress,
        regions=regions,
    )
    views = view_names(data.mirror, data.crops)
    if isinstance(train, TarStream):
        assert data.stream is not None  # it was opened for this
        train_set = PhotoStream(
            train, model.image.encoder, model.text.encoder, tuple(views), data.stream.shuffle
        )
    else:
        train_set = prepare(train, views=views)
    validation_set = prepare(validation_records, views=[PLAIN])
    return PreparedRun(model, train_set, validation_set)


def _training_data(recipe: Recipe, progress: Progress) -> Sequence[Record] | TarStream:
    data = recipe.data
    if data.stream is None:
        return _read(recipe, data.source, data.train_split)
    source, cache = Path(data.source).expanduser(), Path(data.cache).expanduser()
    return open_stream(source, data.train_split, cache, progress)


def _read(recipe: Recipe, source: str, split: str | None) -> list[Record]:
    without_regions = recipe.data.regions is None
    return read_records(Path(source).expanduser(), split, require_photos=without_regions)


def _regions(recipe: Recipe) -> RegionStore | None:
    """Open the regions that a recipe names."""
    data = recipe.data
    if data.regions is None:
        return None
    labels = None if data.region_labels is None else Path(data.region_labels).expanduser()
    return open_regions(Path(data.regions).expanduser(), labels)


def _network(
    recipe: Recipe, train: Sequence[Record] | TarStream, regions: RegionStore | None
) -> AladinModel:
    if recipe.start is not None:
        return load_start(recipe.start)
    assert recipe.model is not None  # a recipe has the one or the other
    config = recipe.model if regions is None else with_detector(recipe.model, regions)
    return AladinModel.create(config, _tokenizer(recipe, config, train))


def _tokenizer(
    recipe: Recipe, model: ModelConfig, train: Sequence[Record] | TarStream
) -> Tokenizer | None:
    if model.text_encoder.source is not None:
        return None
    encoder = text_encoder_class(model)
    return encoder.learn_tokenizer(_captions(train), recipe.tokenizer.vocabulary_size)


def _captions(train: Sequence[Record] | TarStream) -> Iterator[str]:
    if isinstance(train, TarStream):
        return train.captions()
    return (caption for record in train for caption in record.captions)
