"""Opens an unfinished upgrade beside its live generation, for searches by both models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aladin_index.format.models import model_folder
from aladin_index.format.upgrade_plan import UpgradePlan, read_plan, read_sample
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.backend import SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.upgrade.bridged_index import BridgedIndex
from aladin_index.upgrade.methods import ChosenMethod, read_methods
from aladin_index.upgrade.new_collection import live_rows
from aladin_index.upgrade.sample import PairedItems, paired_items
from aladin_index.upgrade.scale import SCALE_ITEMS, ScaleItems
from aladin_index.upgrade.searcher import UpgradingSearcher, UpgradingSide
from aladin_index.upgrade.successor import SuccessorIndex
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import IndexMismatchError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import Target


def find_upgrade(index: SearchBackend) -> UpgradePlan | None:
    """Return the plan of an unfinished upgrade of an open generation, or None if there is none.

    Raises:
        IndexMismatchError: If the plan has another schema version.
        IndexCorruptError: If the plan cannot be read.
    """
    plan = read_plan(index.path)
    return plan if plan is not None and plan.generation == index.generation else None


def load_successor(root: Path, plan: UpgradePlan, device: str = "cpu") -> Checkpoint:
    """Load the new model of an upgrade.

    Args:
        root: Index folder.
        plan: Plan of the upgrade.
        device: Device of the network.

    Raises:
        CheckpointError: If the model cannot be loaded.
        IndexMismatchError: If it is not the model of the plan.
    """
    checkpoint = load_for_inference(model_folder(root, plan.model.id), device)
    if checkpoint.model_id != plan.model.id:
        what = f"{root}: model of the upgrade"
        raise IndexMismatchError(what, plan.model.id, checkpoint.model_id)
    return checkpoint


def open_upgrade(
    live: TwoStageSearcher, plan: UpgradePlan, checkpoint: Checkpoint
) -> UpgradingSearcher | None:
    """Make a searcher that asks both models.

    Args:
        live: Searcher of the live generation.
        plan: Plan of the upgrade.
        checkpoint: The new model.

    Returns:
        The searcher, or None as long as the sample is not encoded and measured.

    Raises:
        IndexCorruptError: If a file of the upgrade cannot be read.
    """
    index = live.index
    assert isinstance(index, SearchIndex)
    methods = read_methods(index.path)
    if methods is None:
        return None
    successor = SuccessorIndex(index, plan.model, checkpoint)
    sides: dict[Target, UpgradingSide] = {}
    for target, chosen in methods.items():
        sample = _scale_sample(index, successor, target)
        if sample is not None:
            sides[target] = upgrading_side(live, checkpoint, target, chosen, sample)
    return UpgradingSearcher(live, successor, sides)


def upgrading_side(
    live: TwoStageSearcher,
    checkpoint: Checkpoint,
    target: Target,
    chosen: ChosenMethod,
    sample: PairedItems,
) -> UpgradingSide:
    """Describe how a collection is searched by both models.

    Args:
        live: Searcher of the live generation.
        checkpoint: The new model.
        target: The collection.
        chosen: How items that are not encoded yet are asked.
        sample: Items that both models have encoded, for the scale.
    """
    searcher, bridge = live, chosen.bridge
    if bridge is not None:
        aligns = bridge.tokens is not None
        bridged = BridgedIndex(live.index, checkpoint, target, aligns=aligns)
        fusion = chosen.rest.fusion
        of_both = None if fusion is None else Fusion(text_to_image=fusion, image_to_text=fusion)
        searcher = TwoStageSearcher(bridged, of_both)
    scales = ScaleItems(sample.old), ScaleItems(sample.new)
    return UpgradingSide(chosen.rest, bridge, searcher, *scales)


def _scale_sample(
    index: SearchIndex, successor: SuccessorIndex, target: Target
) -> PairedItems | None:
    """Return items of the random sample for the scale, or None if there are too few."""
    live, encoded = index.side(target), successor.encoded(target)
    sample = read_sample(index.path, target)
    if sample is None:
        return None
    rows = sample[np.isin(sample, live_rows(live)) & encoded.are_encoded(sample)]
    if len(rows) < 2:
        return None
    places = np.linspace(0, len(rows) - 1, min(SCALE_ITEMS, len(rows))).astype(np.int64)
    return paired_items(live, encoded, rows[places])
