"""Whether the alignment head of a checkpoint was trained, as its ``config.json`` tells.

An alignment that was not trained has tokens and scores like any other, but they say nothing about
which word belongs to which region: such a checkpoint searches by its embeddings, without evidence.
A checkpoint records it (`aladin_network.checkpoint.save_checkpoint`). This module imports neither
torch nor the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, cast

from aladin_network.files import parse_json

_ALIGNMENT = "alignment"
# The head reads the tokens of the trunks: one with new weights leaves it untrained, too.
_RESET = {_ALIGNMENT, "image_trunk", "text_trunk"}

UNALIGNED = (
    "the alignment of this index's model was not trained: hits are ordered by their embeddings,"
    " without re-ranking and without evidence"
)


UNTRAINED = (
    "the towers of this model were never trained together: hits come in random order, until a"
    " recipe of `aladin train` that starts from it has trained them"
)
DRAWN_ALONE = (
    "this model was trained on the drawn scenes of `aladin demo` alone: it knows nothing of photos"
)
# The recipe of the demo, and the end of the path of what it draws.
_DEMO, _DRAWN = "demo", "data/captions.jsonl"


def untrained_reason(recipe: str, stage: str) -> str | None:
    """Return why the order of a checkpoint's hits is random, or None if it is not known to be.

    Args:
        recipe: Recipe of its provenance.
        stage: Stage of its provenance.
    """
    if stage != "convert":
        return None
    known = _parsed(recipe)
    source: object = known.get("converted_from")
    if not isinstance(source, dict):
        return None
    towers = cast(dict[str, Any], source)
    # New heads on an OSCAR have a seed; two towers that belong together have one name.
    is_pair = towers.get("vision") != towers.get("text")
    has_new_heads = "file" in towers and known.get("seed") is not None
    return UNTRAINED if is_pair or has_new_heads else None


def useless_on_photos(recipe: str, stage: str) -> str | None:
    """Return why a checkpoint cannot search photos, or None if nothing is known against it.

    Args:
        recipe: Recipe of its provenance.
        stage: Stage of its provenance.
    """
    known = _parsed(recipe)
    data: object = known.get("data")
    source: object = cast(dict[str, Any], data).get("source") if isinstance(data, dict) else None
    is_drawn = known.get("name") == _DEMO and str(source).endswith(_DRAWN)
    return untrained_reason(recipe, stage) or (DRAWN_ALONE if is_drawn else None)


def _parsed(recipe: str) -> dict[str, Any]:
    try:
        data: object = parse_json(recipe)
    except ValueError:
        return {}
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


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


def read_alignment_trained(folder: Path) -> bool:
    """Read from a checkpoint's folder whether its alignment was trained.

    Returns:
        True if the file cannot be read: loading the checkpoint reports the error.
    """
    return _config(folder).get("alignment_trained") is not False


def read_untrained(folder: Path) -> str | None:
    """Read from a checkpoint's folder why the order of its hits is random; see `untrained_reason`.

    Returns:
        None also if the file cannot be read: loading the checkpoint reports the error.
    """
    provenance = cast(dict[str, Any], _config(folder).get("provenance") or {})
    return untrained_reason(str(provenance.get("recipe")), str(provenance.get("stage")))


def read_pretrained_name(folder: Path) -> str | None:
    """Read from a checkpoint's folder of which pretrained model its image encoder is.

    Returns:
        Name on the hub, or that of a folder without those around it; None without such a model.
    """
    model = cast(dict[str, Any], _config(folder).get("model") or {})
    source = cast(dict[str, Any], model.get("image_encoder") or {}).get("source")
    if not isinstance(source, str):
        return None
    return PurePath(source).name if PurePath(source).is_absolute() else source


def _config(folder: Path) -> dict[str, Any]:
    try:
        return _parsed((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
