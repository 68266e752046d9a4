"""The card of a checkpoint: README.md with the metadata of a hub in front.

The card contains what the checkpoint and the evaluations of an index record, and what the user
says of licence, data and languages. Nothing else is known, and nothing else is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from aladin_index.format.records import Evaluation
from aladin_network.checkpoint_files import Checkpoint, Provenance

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_TASK = "image-text-retrieval"
_SYSTEMS = ("matching", "alignment", "attention", "fused", "two_stage")
_DIRECTIONS = {"text_to_image": "text to image", "image_to_text": "image to text"}
_RECALLS = {"r1": 1, "r5": 5, "r10": 10}


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What a card says that no file records.

    Attributes:
        name: Name of the model, with or without that of its owner.
        license: Identifier of the licence, or "unknown".
        license_name: Name of a licence without an identifier; `license` is then "other".
        license_link: Where that licence can be read, or None.
        languages: Codes of the languages of the texts.
        datasets: Names of the data sets on the hub that it was trained on.
        base_models: Names on the hub of the networks that it started from, or None for those in
            the checkpoint.
    """

    name: str
    license: str = "unknown"
    license_name: str | None = None
    license_link: str | None = None
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()
    base_models: Sequence[str] | None = None


class Figure(NamedTuple):
    """A measured number.

    Attributes:
        data: Data set, as a person names it.
        split: Split of the data set, or None for all of it.
        system: Score or searches that were measured.
        kind: "rsum" or "recall_at_1", "recall_at_5", "recall_at_10".
        direction: "text to image" or "image to text"; None for an rsum, which is of both.
        value: Percent; of an rsum, the sum of six recalls.
    """

    data: str
    split: str | None
    system: str
    kind: str
    direction: str | None
    value: float


def figures_of(provenance: Provenance, evaluations: Sequence[Evaluation]) -> list[Figure]:
    """Collect the recorded figures: of the validation split in training, and of evaluations.

    Args:
        provenance: Origin of the checkpoint.
        evaluations: Evaluations with this checkpoint, one for each data set and split.
    """
    source = cast(dict[str, Any], _recipe(provenance).get("data") or {}).get("source")
    trained_on = Path(str(source)).name if source else "training data"
    figures = [
        Figure(trained_on, "val", name.removesuffix("rsum").strip("_"), "rsum", None, value)
        for name, value in provenance.validation.items()
        if name.endswith("rsum")
    ]
    for each in evaluations:
        data = Path(each.data).name
        for system in _SYSTEMS:
            measured = cast(dict[str, Any], each.figures.get(system) or {})
            for direction, words in _DIRECTIONS.items():
                recalls = cast(dict[str, float], measured.get(direction) or {})
                figures += [
                    Figure(data, each.split, system, f"recall_at_{k}", words, recalls[key])
                    for key, k in _RECALLS.items()
                    if key in recalls
                ]
            if "rsum" in measured:
                rsum = float(measured["rsum"])
                figures.append(Figure(data, each.split, system, "rsum", None, rsum))
    return figures


def base_models(checkpoint: Checkpoint) -> list[str]:
    """Return the names on the hub of the networks that a checkpoint started from.

    Sources that are folders of this machine are not named: they mean nothing elsewhere.
    """
    config = checkpoint.model.config
    origin = _recipe(checkpoint.provenance).get("converted_from")
    sources: list[object] = [config.image_encoder.source, config.text_encoder.source]
    if isinstance(origin, dict):
        sources = [*cast(dict[str, object], origin).values(), *sources]
    names = [
        each
        for each in sources
        if isinstance(each, str) and _HUB_NAME.fullmatch(each) and not Path(each).exists()
    ]
    return list(dict.fromkeys(names))


def card_metadata(
    checkpoint: Checkpoint, options: CardOptions, figures: Sequence[Figure]
) -> dict[str, Any]:
    """Return the metadata in front of the card, in the form of the hub."""
    named = base_models(checkpoint) if options.base_models is None else list(options.base_models)
    of_photos = ["image-text-retrieval", "cross-modal-retrieval"]
    tags = ["aladin-search", *of_photos]
    if checkpoint.alignment_trained:
        tags.append("late-interaction")
    metadata: dict[str, Any] = {
        "license": options.license,
        "license_name": options.license_name,
        "license_link": options.license_link,
        "language": list(options.languages),
        "library_name": "aladin-search",
        "pipeline_tag": "feature-extraction",
        "tags": tags,
        "base_model": named,
        "datasets": list(options.datasets),
        "metrics": ["recall"] if figures else [],
        "model-index": _model_index(options.name, figures),
    }
    return {key: value for key, value in metadata.items() if value not in (None, [])}


def card_text(checkpoint: Checkpoint, options: CardOptions, figures: Sequence[Figure]) -> str:
    """Return the card's text, in Markdown."""
    parts = [
        f"# {options.name.rpartition('/')[2]}",
        _description(checkpoint),
        "## Use\n\n```bash\npip install 'aladin-search[cpu]'\n"
        f"aladin index build --model {options.name} --images photos/ --out INDEX\n"
        'aladin search INDEX "two dogs on grass"\n```\n\n'
        "`--model` takes the folder of these files too.",
        f"## Training\n\n{_training(checkpoint.provenance)}",
        f"## Figures\n\n{_figures_table(figures)}",
        f"## Licence\n\n{_license(options)}",
    ]
    return "\n\n".join(parts) + "\n"


def _model_index(name: str, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    results: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for each in figures:
        words = [each.system.replace("_", " "), each.direction, each.kind.replace("_", " ")]
        metric = {
            "type": each.kind,
            "value": each.value,
            "name": ", ".join(word for word in words if word),
        }
        results.setdefault((each.data, each.split), []).append(metric)
    if not results:
        return []
    return [
        {
            "name": name.rpartition("/")[2],
            "results": [
                {
                    "task": {"type": _TASK, "name": "Image-text retrieval"},
                    "dataset": _dataset(data, split),
                    "metrics": metrics,
                }
                for (data, split), metrics in results.items()
            ],
        }
    ]


def _dataset(data: str, split: str | None) -> dict[str, str]:
    plain = re.sub(r"[^\w.-]+", "-", data)
    return {"name": data, "type": plain} | ({} if split is None else {"split": split})


def _description(checkpoint: Checkpoint) -> str:
    model = checkpoint.model
    reads = "photos" if model.image.encoder.reads == "photo" else "regions of photos"
    count = model.image.encoder.num_tokens
    lines = [
        f"A network for searching photos with texts and texts with photos. It reads {reads} and "
        f"texts of up to {model.text.encoder.config.max_tokens} tokens; an embedding of each has "
        f"{model.embedding_dim} numbers, a token of a word or a region {model.token_dim}."
    ]
    if count is not None and reads == "photos":
        lines.append(f"A photo has at most {count} regions.")
    lines.append(
        "Its alignment of words with regions is trained: searches re-rank by it, with evidence."
        if checkpoint.alignment_trained
        else "Its alignment of words with regions is not trained: searches use embeddings alone."
    )
    return " ".join(lines)


def _training(provenance: Provenance) -> str:
    recipe = _recipe(provenance)
    origin = recipe.get("converted_from")
    if origin is not None:
        return "Converted from published weights, without training."
    stages = [
        f"* `{stage.get('name')}`: {', '.join(cast(Sequence[str], stage.get('tasks') or ()))}"
        for stage in cast(list[dict[str, Any]], recipe.get("stage") or [])
    ]
    if not stages:
        return "The checkpoint does not record how it was trained."
    last = f"These are the weights of stage `{provenance.stage}`, step {provenance.step}"
    code = (
        "" if provenance.commit == "unknown" else f", with the code of commit {provenance.commit}"
    )
    return (
        "Stages and their tasks:\n\n"
        + "\n".join(stages)
        + f"\n\n{last}{code}. The whole recipe is in `config.json`."
    )


def _figures_table(figures: Sequence[Figure]) -> str:
    if not figures:
        return "No evaluation was given when this card was written."
    rows = ["| data | split | score | direction | figure | value |", "|---|---|---|---|---|---|"]
    for each in figures:
        kind = "rsum" if each.kind == "rsum" else f"R@{each.kind.rpartition('_')[2]} (%)"
        system, direction = each.system.replace("_", " "), each.direction or "both"
        rows.append(
            f"| {each.data} | {each.split or 'all'} | {system} | {direction} | {kind} "
            f"| {each.value:.1f} |"
        )
    return "\n".join(rows)


def _license(options: CardOptions) -> str:
    if options.license == "unknown":
        return "No licence was given for these weights."
    name = options.license_name or options.license
    return name if options.license_link is None else f"[{name}]({options.license_link})"


def _recipe(provenance: Provenance) -> dict[str, Any]:
    try:
        recipe: object = json.loads(provenance.recipe)
    except ValueError:
        return {}
    return cast(dict[str, Any], recipe) if isinstance(recipe, dict) else {}
