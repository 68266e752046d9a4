"""What of a comparison is kept, so that anyone can recompute its verdicts without a network.

OUT/claims.json    the claims with their verdicts, and the runs that these come from
OUT/ranks.npz      the ranks of these runs as int16, and which captions belong to which photo

A verdict by the mean difference needs scores, which are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aladin_network.config import parse_config
from aladin_network.errors import DataError
from aladin_network.files import atomic_file, write_json
from aladin_network.scoring.metrics import Ranks
from aladin_training.comparison.claims import Claim, JudgedClaim, Sides, Steps
from aladin_training.comparison.evaluation import RunEvaluation

CLAIMS, _RANKS = "claims.json", "ranks.npz"
_SCHEMA_VERSION = 2
_DIRECTIONS = ("text_to_image", "image_to_text")
_MOST = np.iinfo(np.int16).max

# Recipe, seed and score of a run.
_Key = tuple[str, int, str]


def keep(out: Path, sides: Sequence[Sides], judged: Sequence[JudgedClaim]) -> None:
    """Write the judged claims, and the ranks that their verdicts come from."""
    runs: dict[_Key, RunEvaluation] = {}
    for each in (each for each in sides if each.claim.measure != "md"):
        score, than_score = each.scores
        for recipe, by, answers in (
            (each.claim.better, score, each.ours),
            (each.than, than_score, each.theirs),
            (each.claim.than, than_score, each.own or {}),
        ):
            runs |= {(recipe, seed, by): run for seed, run in answers.items() if by in run.ranks}
    photos = {run.queries: run.image_of_text for run in runs.values()}
    arrays: dict[str, npt.NDArray[np.int16]] = {
        f"image_of_text.{queries}": _as_int16(rows) for queries, rows in photos.items()
    }
    for number, (key, run) in enumerate(runs.items()):
        for direction, ranks in zip(_DIRECTIONS, run.ranks[key[2]], strict=True):
            arrays[f"{number}.{direction}"] = _as_int16(ranks)
    with atomic_file(out / _RANKS) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    write_json(
        out / CLAIMS,
        {
            "schema_version": _SCHEMA_VERSION,
            "claims": [_entry(*each) for each in zip(sides, judged, strict=True)],
            "runs": [[*key, run.queries] for key, run in runs.items()],
        },
    )


def load_sides(folder: Path, *others: Path) -> tuple[list[Sides], list[str]]:
    """Read what `keep` wrote: the sides of the claims that ranks decide, and their verdicts.

    The runs of other folders, of the same comparison with other seeds, are added to those of the
    first; the verdicts are the first one's.

    Raises:
        DataError: If files are missing or not those of a comparison, or two folders have a run.
    """
    entries: list[dict[str, Any]] = []
    sides: list[Sides] = []
    runs: dict[tuple[str, str], dict[int, RunEvaluation]] = {}
    for each in (folder, *others):
        try:
            found = _load_runs(each, runs)
            entries = entries or found
            sides = [_sides(entry, runs) for entry in entries]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(each, None, f"holds no kept comparison ({error!r})") from error
    return sides, [each["verdict"] for each in entries]


def _load_runs(
    folder: Path, runs: dict[tuple[str, str], dict[int, RunEvaluation]]
) -> list[dict[str, Any]]:
    """Add the runs of a folder, and return its claims that ranks decide."""
    data: dict[str, Any] = json.loads((folder / CLAIMS).read_text(encoding="utf-8"))
    with np.load(folder / _RANKS, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name].astype(np.int64)) for name in file.files}
    if data["schema_version"] != _SCHEMA_VERSION:
        raise ValueError(f"schema version {data['schema_version']}")
    for number, (recipe, seed, score, queries) in enumerate(data["runs"]):
        of_recipe = runs.setdefault((recipe, score), {})
        if seed in of_recipe:
            raise ValueError(f"{recipe} has seed {seed} in another folder, too")
        ranks = Ranks(*(arrays[f"{number}.{each}"] for each in _DIRECTIONS))
        rows = arrays[f"image_of_text.{queries}"]
        of_recipe[seed] = _of_ranks({score: ranks}, rows, queries)
    return [each for each in data["claims"] if each["claim"]["measure"] != "md"]


def _of_ranks(ranks: dict[str, Ranks], image_of_text: Tensor, queries: str) -> RunEvaluation:
    """Return an evaluation of which only the ranks are known."""
    return RunEvaluation(
        model_id="",
        split="",
        ranks=ranks,
        mean_difference={},
        cross_rank={},
        histograms={},
        image_of_text=image_of_text,
        cross_ranks={},
        separation={},
        queries=queries,
    )


def _as_int16(values: Tensor) -> npt.NDArray[np.int16]:
    return values.cpu().clamp(max=_MOST).to(torch.int16).numpy()


def _entry(sides: Sides, judged: JudgedClaim) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "claim": asdict(sides.claim),
        "compared_with": sides.than,
        "scores": list(sides.scores),
        "steps": None if sides.steps is None else list(sides.steps),
        "runs": judged.runs,
        "verdict": judged.verdict.value,
    }
    if judged.found is not None:
        entry |= judged.found.interval._asdict()
        entry["smallest_effect"] = judged.found.smallest_effect
    if judged.without_control is not None:
        entry["without_control"] = list(judged.without_control)
    return entry


def _sides(
    entry: dict[str, Any], runs: Mapping[tuple[str, str], Mapping[int, RunEvaluation]]
) -> Sides:
    claim = parse_config(Claim, entry["claim"], CLAIMS)
    than, (score, than_score) = entry["compared_with"], entry["scores"]
    theirs, own = runs.get((than, than_score), {}), runs.get((claim.than, than_score), {})
    return Sides(
        claim=claim,
        than=than,
        steps=None if entry["steps"] is None else Steps(*entry["steps"]),
        scores=(score, than_score),
        ours=runs.get((claim.better, score), {}),
        theirs=theirs,
        own=None if than == claim.than else own,
    )
