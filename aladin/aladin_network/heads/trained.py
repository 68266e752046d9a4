"""Whether the alignment head of a checkpoint was trained, as its ``config.json`` tells.

An alignment that was not trained has tokens and scores like any other, but they say nothing about
which word belongs to which region: such a checkpoint searches by its embeddings, without evidence.
A checkpoint records it (`aladin_network.checkpoint.save_checkpoint`); for older ones it is derived
from the recipe in their provenance. This module imports neither torch nor the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

_ALIGNMENT = "alignment"
# The head reads the tokens of the trunks: one with new weights leaves it untrained, too.
_RESET = {_ALIGNMENT, "image_trunk", "text_trunk"}

UNALIGNED = (
    "the alignment of this index's model was not trained: hits are ordered by their embeddings,"
    " without re-ranking and without evidence"
)


def trains_alignment(recipe: Mapping[str, Any], stage: str, *, before: bool) -> bool:
    """Tell whether the alignment of a stage's network was trained, by it or by a stage before.

    Args:
        recipe: Recipe as plain data, as in a checkpoint's provenance.
        stage: Name of the stage.
        before: Whether the alignment of the network that the recipe starts from was trained.

    Returns:
        True if the stage, or one that it continues, has a task of the alignment score, unless a
        later one of them reset the head, or a trunk whose tokens it reads.
    """
    stages = cast(list[dict[str, Any]], recipe.get("stage") or [])
    names = [each.get("name") for each in stages]
    if stage not in names:
        return before
    number = names.index(stage)
    own = stages[number]
    if any(name.startswith(_ALIGNMENT) for name in own.get("tasks") or ()):
        return True
    if _RESET.intersection(own.get("reset") or ()):
        return False
    start = own.get("start") or (names[number - 1] if number else None)
    return before if start is None else trains_alignment(recipe, str(start), before=before)


def alignment_trained(config: Mapping[str, Any]) -> bool:
    """Tell whether the alignment of a checkpoint was trained.

    Args:
        config: Content of its ``config.json``.

    Returns:
        What was recorded. Of an older checkpoint: False for converted towers and a converted OSCAR,
        and for a network that a recipe trained from random weights without a task of the alignment;
        True for everything else, which has been searched with the alignment so far.
    """
    recorded = config.get("alignment_trained")
    if isinstance(recorded, bool):
        return recorded
    provenance = cast(dict[str, Any], config.get("provenance") or {})
    try:
        recipe: object = json.loads(provenance.get("recipe") or "")
    except ValueError:
        return True
    if not isinstance(recipe, dict):
        return True
    known = cast(dict[str, Any], recipe)
    if "converted_from" in known:
        # New tensors have a seed; the conversion of ALADIN's own checkpoints has none.
        return known.get("seed") is None
    stage = str(provenance.get("stage"))
    return trains_alignment(known, stage, before=known.get("start") is not None)


def read_alignment_trained(folder: Path) -> bool:
    """Read from a checkpoint's folder whether its alignment was trained; see `alignment_trained`.

    Returns:
        True if the file cannot be read: loading the checkpoint reports the error.
    """
    try:
        data: object = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return not isinstance(data, dict) or alignment_trained(cast(dict[str, Any], data))
