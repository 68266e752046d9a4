"""From a recipe to a network and its data, ready for the first stage."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.encoders.registry import text_encoder_class
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_network.types import Progress
from aladin_training.adapters.lora import check_peft
from aladin_training.adapters.parts import check_fine_tuning
from aladin_training.batches.dataset import PairDataset, TrainingSet
from aladin_training.batches.items import (
    PLAIN,
    check_regions,
    region_items,
    view_names,
    with_detector,
)
from aladin_training.batches.offline_negatives import lists_digest
from aladin_training.config.recipe import Recipe, StartConfig
from aladin_training.config.stage import StageConfig
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore, open_regions
from aladin_training.data.selection import SELECTION, Folds, SelectionSplit, read_part
from aladin_training.stages.set_memory import SetMemory
from aladin_training.streaming.streamed_batches import PhotoStream
from aladin_training.streaming.tar_stream import TarStream, open_stream
from aladin_training.tasks.joint import build_tasks


class PreparedRun(NamedTuple):
    """A network and its data, before any stage; the selection set chooses weights and fusion."""

    model: AladinModel
    train_set: TrainingSet
    selection_set: PairDataset
    validation_set: PairDataset


def prepare_run(
    recipe: Recipe,
    progress: Progress,
    before_encoding: Callable[[], None] = lambda: None,
    memory: SetMemory | None = None,
) -> PreparedRun:
    """Check a recipe, build its network and find its data; then call `before_encoding`."""
    for stage in recipe.stage:
        build_tasks(stage)
    _check_packages(recipe)
    torch.manual_seed(recipe.seed)
    regions = open_recipe_regions(recipe)
    start = None if recipe.start is None else load_start(recipe.start)
    if memory is None or recipe.data.stream is not None:  # a stream is read once, from its start
        memory = SetMemory()
    train, kept, validation = memory.recall(
        f"records:{recipe.data!r}", lambda: _read_records(recipe, progress)
    )
    model = _build_network(recipe, train, regions) if start is None else start
    for stage in recipe.stage:
        check_fine_tuning(model, stage.tune)
        _check_new_crops(recipe, stage, model, photos=regions is None)
    check_regions(model.image.encoder, regions)
    if regions is not None:
        assert not isinstance(train, TarStream)  # refused by `DataConfig`
        region_items((*train, *kept, *validation), model.image.encoder, regions)
    before_encoding()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    prepare = functools.partial(
        memory.pairs, recipe=recipe, model=model, progress=progress, regions=regions
    )
    views = view_names(recipe.data.mirror, recipe.data.crops)
    if isinstance(train, TarStream):
        assert recipe.data.stream is not None  # it was opened as one
        encoders = model.image.encoder, model.text.encoder
        train_set = PhotoStream(train, *encoders, tuple(views), recipe.data.stream.shuffle)
    else:
        train_set = prepare(
            "train",
            train,
            views=views,
            short_captions=any(stage.short_captions for stage in recipe.stage),
        )
    validation_set = prepare("validation", validation, views=[PLAIN])
    selection_set = prepare(SELECTION, kept, views=[PLAIN]) if kept else validation_set
    return PreparedRun(model, train_set, selection_set, validation_set)


def check_before_conversion(recipe: Recipe) -> None:
    """Check a recipe whose start is still to be downloaded or converted, which takes minutes."""
    _check_packages(recipe)
    data = recipe.data
    if data.stream is None:
        _read_split(recipe, data.source, data.train_split)
    _read_split(recipe, data.validation_source or data.source, data.validation_split)


def _check_packages(recipe: Recipe) -> None:
    for stage in recipe.stage:
        if any(config.mode == "lora" for config in stage.tune.values()):
            check_peft()


def _check_new_crops(recipe: Recipe, stage: StageConfig, model: AladinModel, photos: bool) -> None:
    if not stage.new_crops:
        return
    if not photos:
        raise ConfigError(f"stage {stage.name!r}: new_crops apply to photos alone")
    tuned = stage.tune.get("image_encoder")
    cached = model.image.encoder.frozen if tuned is None else tuned.cached
    if cached and recipe.data.stream is None:
        found = "a frozen encoder" if tuned is None else "cached states"
        raise ConfigError(
            f"stage {stage.name!r}: new_crops need an image encoder that reads the photos in "
            f"every step, expected tune.image_encoder without cached, got {found}"
        )


def with_recorded_ids(recipe: Recipe) -> Recipe:
    """Add what identifies a recipe's inputs of other runs: start, anchors and mined negatives."""
    start = recipe.start
    if start is not None:
        model_id = read_model_id(Path(start.checkpoint).expanduser())
        check_model_id("start", start.checkpoint, start.model_id, model_id)
        start = dataclasses.replace(start, model_id=model_id)
    stages = tuple(_with_content(_with_anchor_ids(stage)) for stage in recipe.stage)
    return dataclasses.replace(recipe, start=start, stage=stages)


def _with_anchor_ids(stage: StageConfig) -> StageConfig:
    anchors = stage.anchors
    if anchors is None or not anchors.checkpoints:
        return stage
    ids = [read_model_id(Path(folder).expanduser()) for folder in anchors.checkpoints]
    for folder, expected, found in zip(anchors.checkpoints, anchors.model_ids, ids, strict=False):
        check_model_id("anchors", folder, expected, found)
    return dataclasses.replace(stage, anchors=dataclasses.replace(anchors, model_ids=tuple(ids)))


def _with_content(stage: StageConfig) -> StageConfig:
    offline = stage.offline
    if offline is None or offline.file is None:
        return stage
    found = lists_digest(Path(offline.file).expanduser())
    if offline.content not in (None, found):
        raise ConfigError(
            f"offline: {offline.file} holds the lists {found[:12]}, expected {offline.content[:12]}"
        )
    return dataclasses.replace(stage, offline=dataclasses.replace(offline, content=found))


def load_start(start: StartConfig) -> AladinModel:
    """Load the network that a run starts from."""
    folder = Path(start.checkpoint).expanduser()
    checkpoint = load_checkpoint(folder, frozen=start.frozen)
    check_model_id("start", start.checkpoint, start.model_id, checkpoint.model_id)
    return checkpoint.model


def check_model_id(key: str, checkpoint: str, expected: str | None, found: str) -> None:
    """Refuse a checkpoint that holds another network than a recipe asks for."""
    if expected is not None and expected != found:
        raise ConfigError(
            f"{key}: {checkpoint} holds the model {found[:12]}, expected {expected[:12]}"
        )


def open_recipe_regions(recipe: Recipe) -> RegionStore | None:
    data = recipe.data
    if data.regions is None:
        return None
    labels = None if data.region_labels is None else Path(data.region_labels).expanduser()
    return open_regions(Path(data.regions).expanduser(), labels)


def open_training_data(recipe: Recipe, progress: Progress) -> Sequence[Record] | TarStream:
    """Read the training split of a recipe, or open it as a stream."""
    data = recipe.data
    if data.stream is None:
        return _read_split(recipe, data.source, data.train_split)
    source, cache = Path(data.source).expanduser(), Path(data.cache).expanduser()
    return open_stream(source, data.train_split, cache, progress)


class _Records(NamedTuple):
    """Photos with captions, before any is decoded; `kept` are those of the selection split."""

    train: Sequence[Record] | TarStream
    kept: Sequence[Record]
    validation: Sequence[Record]


def _read_records(recipe: Recipe, progress: Progress) -> _Records:
    data = recipe.data
    train = open_training_data(recipe, progress)
    validation = _read_split(recipe, data.validation_source or data.source, data.validation_split)
    if not data.selection:
        return _Records(train, [], validation)
    assert not isinstance(train, TarStream)  # refused by `DataConfig`
    trained, kept = SelectionSplit(data.train_split, data.selection).divide(train)
    if not (trained and kept):
        raise ConfigError(
            f"data: selection {data.selection}: of {len(train)} training photos, {len(trained)} "
            f"are left to train on and {len(kept)} to choose on"
        )
    return _Records(trained, kept, validation)


def _read_split(recipe: Recipe, source: str, split: str | None) -> Sequence[Record]:
    data, folds = recipe.data, None
    if data.folds > 1:
        assert data.train_split is not None  # refused by `DataConfig`
        folds = Folds(data.train_split, data.validation_split, data.folds, data.fold)
    path = Path(source).expanduser()
    return read_part(path, split, folds, require_photos=data.regions is None)


def _build_network(
    recipe: Recipe, train: Sequence[Record] | TarStream, regions: RegionStore | None
) -> AladinModel:
    """Create the network; a text encoder without a vocabulary learns one from the captions."""
    assert recipe.model is not None  # a recipe has either a model or a start
    config = recipe.model if regions is None else with_detector(recipe.model, regions)
    tokenizer = None
    if config.text_encoder.source is None:
        captions = (
            train.captions()
            if isinstance(train, TarStream)
            else (caption for record in train for caption in record.captions)
        )
        size = recipe.tokenizer.vocabulary_size
        tokenizer = text_encoder_class(config).learn_tokenizer(captions, size)
    return AladinModel.create(config, tokenizer)
