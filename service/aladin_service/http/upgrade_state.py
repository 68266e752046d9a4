"""An unfinished upgrade in the response of ``/v1/index/state``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from aladin_index.format.upgrade_plan import UpgradeProgress
from aladin_index.generations.info import ItemCounts
from aladin_network.types import Target


class _Part(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class UpgradeRecalls(_Part):
    """Recalls at 10 on sample items, used to choose the model that searches the remaining items."""

    truth: Literal["captions", "agreement"] = Field(
        description="What counted as right: the items of a photo's captions, or the ten items that"
        " the new model finds first."
    )
    queries: int
    items: int = Field(description="Number of items that were searched.")
    new: float = Field(description="Recall of the new model on its own encodings.")
    old: float = Field(description="Recall of the old model.")
    bridge: float = Field(description="Recall of the new model over the bridge.")


class UpgradeSide(_Part):
    """One collection during an upgrade."""

    total: int = Field(description="Items that a search may return.")
    encoded: int = Field(description="Items that the new model has encoded.")
    skipped: int = Field(description="Items that it could not encode.")
    rest: Literal["old", "bridge"] | None = Field(
        description="What scores the other items: the old model, or the new one over a bridge; null"
        " as long as the old model answers alone."
    )
    recalls: UpgradeRecalls | None = Field(description="Null if not measured.")


class UpgradeState(_Part):
    """An unfinished upgrade of the index to another model."""

    new_model_id: str
    started_at: datetime
    images: UpgradeSide | None
    texts: UpgradeSide | None


def describe_upgrade(
    progress: UpgradeProgress | None, counts: Mapping[Target, ItemCounts]
) -> UpgradeState | None:
    """Convert the progress of an upgrade into its part of the answer.

    Args:
        progress: Progress of the upgrade, or None without one.
        counts: Numbers of items of each collection of the index.
    """
    if progress is None:
        return None
    sides: dict[Target, UpgradeSide] = {}
    for target, of_target in counts.items():
        rest = None if progress.methods is None else progress.methods.get(target)
        measured = None if rest is None else rest.recalls
        sides[target] = UpgradeSide(
            total=of_target.live,
            encoded=progress.encoded[target],
            skipped=progress.skipped[target],
            rest=None if rest is None else rest.method,
            recalls=None if measured is None else UpgradeRecalls.model_validate(measured),
        )
    return UpgradeState(
        new_model_id=progress.plan.model.id,
        started_at=datetime.fromtimestamp(progress.plan.started_at_s, UTC),
        images=sides.get("images"),
        texts=sides.get("texts"),
    )
