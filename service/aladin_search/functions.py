"""The functions of this package: an index is opened or built, a network trained or evaluated."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from aladin_network.conversion.named_models import DEFAULT_MODEL
from aladin_network.types import DeviceName
from aladin_search.index import Index
from aladin_search.inputs import check_literals, photos_of, texts_of
from aladin_search.progress import reported
from aladin_service.library.places import libraries_folder, model_folder, with_start_folder

if TYPE_CHECKING:
    from aladin_index.settings import BuildSettings
    from aladin_network.scoring.metrics import RetrievalMetrics
    from aladin_network.types import Progress


def open(
    path: str | PathLike[str], *, device: DeviceName = "cpu", detector: str | None = None
) -> Index:
    """Open an index for searches and changes.

    Args:
        path: Folder of the index, or the folder that stands for an index in a vector database; also
            the name of a library of ``aladin photos``, or a folder that one library follows.
        device: Where the network and the searches run; "auto" uses a CUDA device if there is one.
        detector: Finds the regions of photos, for networks that read regions: as the option
            ``--detector`` of the command line.

    Returns:
        The index; close it, or use it in a ``with`` statement.

    Raises:
        IndexNotReadyError: If there is no index, or no generation of it is complete.
        IndexCorruptError: If a file is not what was written.
        ConfigError: If FAISS or the package of a vector database is not installed.
    """
    return Index(Path(path), device, detector)


def build(
    images: str | PathLike[str] | None = None,
    texts: str | PathLike[str] | None = None,
    *,
    model: str | PathLike[str] = DEFAULT_MODEL,
    out: str | PathLike[str],
    split: str | None = None,
    settings: BuildSettings | None = None,
    device: DeviceName = "cpu",
    resume: bool = False,
    replace: bool = False,
    progress: bool | Progress = False,
) -> Index:
    """Build an index of photos, of texts, or of both, and open it.

    Args:
        images: Photos: a folder, JSONL, Karpathy JSON, CSV, TSV, parquet or webdataset tars.
        texts: Texts: JSONL or a table, or a data set whose captions to take.
        model: Network that encodes the items: the folder of a checkpoint, or a dual encoder such as
            CLIP or SigLIP, as a folder of the transformers library or by its name on the hub
            (``google/siglip2-base-patch16-224``), which is converted once.
        out: Folder of the index: a new one, or with `replace` another.
        split: Split of the data set to take, or None for all of it.
        settings: Further settings of the build, or None for the defaults.
        device: Where the network runs and the index is built, and where searches run.
        resume: Continue an interrupted build of the same items in `out`.
        replace: Replace the index in `out`, other than that of a library, which follows folders.
        progress: True shows the progress on stderr.

    Returns:
        The index; `Index.skipped` names the files that could not be used.

    Raises:
        InputError: If there is nothing to index, or the data cannot be used.
        CheckpointError: If the network cannot be read.
        ConfigError: If `out` holds an index that may not be replaced or something else, or a
            setting is impossible.
        IndexMismatchError: If the index in `out` was built with another network.
        IndexWriteError: If `out` cannot be written.
    """
    check_literals(device=(device, DeviceName))
    from aladin_service.library.libraries import check_output

    check_output(Path(out), libraries_folder(), replace=replace or resume)
    checkpoint = model_folder(model)
    from aladin_index.building.builder import build_index
    from aladin_index.settings import BuildSettings
    from aladin_service.commands.options import building_device

    chosen = dataclasses.replace(
        settings or BuildSettings(readers=os.cpu_count() or 1),
        device=building_device(device),
        resume=resume,
        replace=replace,
    )
    photos = None if images is None else photos_of(Path(images), split)
    lines = None if texts is None else texts_of(Path(texts), split)
    with reported(progress) as shown:
        build_index(checkpoint, Path(out), photos, lines, chosen, shown)
    return open(out, device=device)


def recipes() -> dict[str, str]:
    """Return the recipes of this package: a one-line description by name."""
    from aladin_training.config.shipped import shipped_recipes

    return {each.name: each.summary for each in shipped_recipes()}


def train(
    recipe: str | PathLike[str],
    out: str | PathLike[str],
    *,
    settings: Mapping[str, object] | None = None,
    resume: bool = False,
    progress: bool | Progress = False,
) -> Path:
    """Train a network from a recipe.

    Args:
        recipe: Name of a recipe of this package, see `recipes`, or path of a TOML file.
        out: Folder of the run; created if it does not exist.
        settings: Values that replace those of the recipe, by dotted key, such as
            ``{"data.source": "DATA.jsonl", "stage.student.epochs": 2}``.
        resume: Continue the interrupted run in `out`.
        progress: True shows the progress on stderr.

    Returns:
        Folder of the final checkpoint, which `build` takes as `model`; with its graphs, unless the
        network has none or the variable ALADIN_RUNTIME is `torch`.

    Raises:
        ConfigError: If there is no such recipe, a setting is wrong, or `out` holds a run and
            `resume` is off, or a run of another recipe.
        InputError: If the data cannot be used.
        CheckpointError: If a network that the recipe starts from cannot be read.
    """
    from aladin_training.config.shipped import find_recipe

    path = find_recipe(Path(recipe))
    from aladin_training.config.recipe import load_recipe
    from aladin_training.stages.run import run_recipe

    overrides = [
        f"{key}={json.dumps(value, default=str)}" for key, value in (settings or {}).items()
    ]
    with reported(progress) as shown:
        loaded = with_start_folder(load_recipe(path, overrides))
        checkpoint = run_recipe(loaded, Path(out), resume=resume, progress=shown).checkpoint
    from aladin_network.graphs.export import export_where_possible

    export_where_possible(checkpoint)
    return checkpoint


def evaluate(
    model: str | PathLike[str],
    data: str | PathLike[str],
    *,
    split: str | None = "test",
    index: str | PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> dict[str, RetrievalMetrics]:
    """Measure how well captions find their photos, and photos their captions.

    Args:
        model: The network, as of `build`.
        data: Photos with captions, in any format that `build` reads.
        split: Split of the data, or None for all photos.
        index: Index of the same photos and captions, to evaluate its searches too, or None.
        progress: True shows the progress on stderr.

    Returns:
        Metrics by system: "matching" (embeddings alone), "alignment" and "fused", each exhaustive,
        and with `index` "two_stage". Each has `text_to_image` and `image_to_text` with `r1`, `r5`
        and `r10` in percent, `median_rank` and `mean_rank`, and `rsum`.

    Raises:
        InputError: If the data cannot be used, or are not in the index.
        CheckpointError: If the network cannot be read.
        IndexMismatchError: If the index was built with another network.
    """
    checkpoint = model_folder(model)
    from aladin_service.measure.evaluate import evaluate_system

    folder = None if index is None else Path(index)
    with reported(progress) as shown:
        return evaluate_system(checkpoint, Path(data), split, folder, shown).metrics
