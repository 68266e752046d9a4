"""Export of a checkpoint as a folder for a model hub: its files, and a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aladin_index.format.layout import live_generation
from aladin_index.format.records import Evaluation, read_evaluations
from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.tensors import refuse_existing
from aladin_network.errors import ConfigError, IndexMismatchError
from aladin_network.files import atomic_folder
from aladin_service.export.model_card import (
    CardOptions,
    Figure,
    card_metadata,
    card_text,
    figures_of,
)
from aladin_service.export.sentence_transformers import copy_checkpoint

_CARD = "README.md"


def export_hub(
    checkpoint: Path, out: Path, options: CardOptions, index: Path | None = None
) -> list[Figure]:
    """Write the files of a checkpoint and its card.

    Args:
        checkpoint: Folder of the checkpoint.
        out: Folder to write; it must not exist yet, or be empty.
        options: What the card says that no file records.
        index: Index of this checkpoint, whose stored evaluations the card shows, or None.

    Returns:
        The figures on the card.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If `out` is in use, or an option is impossible on a hub.
        IndexMismatchError: If the index, or an evaluation of it, is of another checkpoint.
        IndexNotReadyError: If there is no index.
    """
    import yaml  # a dependency of the hub's client, and so of transformers

    refuse_existing(out)
    _check_options(options)
    loaded = load_checkpoint(checkpoint)
    evaluations = [] if index is None else _evaluations(index, loaded.model_id)
    figures = figures_of(loaded.provenance, evaluations)
    metadata = card_metadata(loaded, options, figures)
    check_card(metadata)
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    with atomic_folder(out) as partial:
        copy_checkpoint(checkpoint, partial)
        text = card_text(loaded, options, figures)
        (partial / _CARD).write_text(f"---\n{front}---\n\n{text}", encoding="utf-8")
    return figures


def check_card(metadata: dict[str, Any]) -> None:
    """Check a card's metadata with the hub's client, without the network.

    Args:
        metadata: Metadata of the card.

    Raises:
        ConfigError: If the client does not understand it.
    """
    from huggingface_hub import ModelCardData

    try:
        parsed = ModelCardData(**metadata)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"model card: the metadata is invalid ({reason})") from error
    expected = sum(
        len(result["metrics"])
        for entry in metadata.get("model-index", ())
        for result in entry["results"]
    )
    if len(parsed.eval_results or ()) != expected:
        raise ConfigError(f"model card: expected {expected} figures in its metadata")


def _check_options(options: CardOptions) -> None:
    """Check names as the hub does.

    Raises:
        ConfigError: If a name is impossible, or the licence's name and identifier do not go
            together.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    given = {"--name": [options.name], "--dataset": options.datasets}
    for option, names in {**given, "--base-model": options.base_models or ()}.items():
        for name in names:
            try:
                validate_repo_id(name)
            except HFValidationError as error:
                reason = " ".join(str(error).split())
                raise ConfigError(f"{option}: {name!r} is no name on a hub ({reason})") from error
    if (options.license == "other") != (options.license_name is not None):
        raise ConfigError(
            "--license: expected --license-name with the licence 'other', and only with it"
        )


def _evaluations(index: Path, model_id: str) -> list[Evaluation]:
    """Read the evaluations of the live generation, the newest of each data set and split."""
    stored = read_evaluations(index, live_generation(index))
    newest: dict[tuple[str, str | None], Evaluation] = {}
    for each in sorted(stored, key=lambda each: each.measured_at_s):
        if each.model_id != model_id:
            raise IndexMismatchError("model", model_id, each.model_id)
        newest[each.data, each.split] = each
    return list(newest.values())
