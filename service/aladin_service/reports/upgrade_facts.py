"""The facts of an unfinished upgrade, as `aladin index info` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from aladin_index.format.upgrade_methods import MeasuredRecalls, RestMethod
from aladin_index.format.upgrade_plan import UpgradeProgress
from aladin_network.types import Target

_TRUTH = {"captions": "photos of captions", "agreement": "what the new model finds first"}


def upgrade_facts(
    progress: UpgradeProgress | None, counts: Mapping[Target, int]
) -> list[tuple[str, str]]:
    """Return the facts as names and values; none without an upgrade.

    Args:
        progress: Progress of the upgrade, or None without one.
        counts: Number of live items of each collection.
    """
    if progress is None:
        return []
    plan = progress.plan
    since = datetime.fromtimestamp(plan.started_at_s, UTC).isoformat(timespec="seconds")
    facts = [("upgrade", f"unfinished, to model {plan.model.id}, since {since}")]
    for target, total in counts.items():
        encoded, skipped = progress.encoded[target], progress.skipped[target]
        done = f"{min(encoded, total):,} of {total:,} encoded"
        missing = f", {skipped:,} cannot be" if skipped else ""
        rest = None if progress.methods is None else progress.methods.get(target)
        facts.append((f"  {target}", f"{done}{missing}; {rest_fact(rest)}"))
    return facts


def rest_fact(rest: RestMethod | None) -> str:
    """Describe what answers for the items that are not encoded yet."""
    return "the old model answers alone" if rest is None else f"the others: {method_fact(rest)}"


def method_fact(rest: RestMethod) -> str:
    """Describe what answers for items that are not encoded, and by which recalls it was chosen."""
    asked = "the new model over a bridge" if rest.method == "bridge" else "the old model"
    measured = "" if rest.recalls is None else f" ({recalls_fact(rest.recalls)})"
    return f"{asked}{measured}"


def recalls_fact(recalls: MeasuredRecalls) -> str:
    """Describe the recalls by which a bridge was compared with the old model."""
    return (
        f"recall at 10: bridge {recalls.bridge:.3f}, old {recalls.old:.3f}, new {recalls.new:.3f}, "
        f"{recalls.queries} queries among {recalls.items} items by {_TRUTH[recalls.truth]}"
    )


def upgrade_data(progress: UpgradeProgress | None) -> dict[str, Any] | None:
    """Return the facts as JSON data, or None without an upgrade."""
    if progress is None:
        return None
    methods = progress.methods
    return {
        "new_model_id": progress.plan.model.id,
        "started_at_s": progress.plan.started_at_s,
        "encoded": progress.encoded,
        "skipped": progress.skipped,
        "methods": None if methods is None else {name: asdict(m) for name, m in methods.items()},
    }
