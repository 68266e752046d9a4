"""A run that chooses on a selection split, compared with one on data that were divided by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_training.config.recipe import load_recipe
from aladin_training.data import read_records
from aladin_training.data.selection import SelectionSplit
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.stages.run import read_validation, run_recipe
from tests.training.runs import assert_same_weights

SHORT = ["stage.joint.epochs=2", "stage.student.epochs=1"]


def divided_by_hand(data_set: Path, target: Path) -> Path:
    """Rewrite a data set: what the selection split holds is a split "chosen" of its own."""
    selection = SelectionSplit("train", 0.4)
    lines: list[str] = []
    for record in read_records(data_set):
        split = record.split
        if split == "train" and selection.holds(record.id):
            split = "chosen"
        photo = str(data_set.parent / record.uri)
        entry = {"image": photo, "id": record.id, "captions": record.captions, "split": split}
        lines.append(json.dumps(entry))
    target.write_text("\n".join(lines), encoding="utf-8")
    return target


def test_weights_and_fusion_are_chosen_on_it_and_the_validation_split_reports(
    recipe_path: Path, data_set: Path, tmp_path: Path
) -> None:
    run_recipe(load_recipe(recipe_path, ["data.selection=0.4", *SHORT]), tmp_path / "run")
    by_hand = divided_by_hand(data_set, tmp_path / "divided.jsonl")
    others = [*SHORT, f"data.source={by_hand}", "data.validation_split=chosen"]
    run_recipe(load_recipe(recipe_path, others), tmp_path / "by-hand")
    for stage in ("joint", "student"):
        folders = [tmp_path / run / "stages" / stage for run in ("run", "by-hand")]
        assert_same_weights(*folders)
        ours, theirs = (load_checkpoint(each / "checkpoint") for each in folders)
        assert ours.fusion == theirs.fusion
        assert ours.provenance.step == theirs.provenance.step
        # The other split reports: six photos of val, in place of those that were kept apart.
        reported = read_validation(folders[0])
        expected = evaluate_checkpoint(ours, read_records(data_set, "val")).metrics()
        assert reported["fused"].rsum == pytest.approx(expected["fused"].rsum)
        assert ours.provenance.validation["fused_rsum"] == reported["fused"].rsum
