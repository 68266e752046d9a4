"""The facts printed by `aladin index info`, for an index in files or a vector database."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from aladin_index.engines.engine_index import EngineInfo
from aladin_index.format.manifest import AnnEntry, CollectionEntry, Tuning
from aladin_index.format.skipped import SkippedSummary
from aladin_index.generations.info import IndexInfo, MemoryEstimate
from aladin_network.calibration.calibration import Calibration, DirectionCalibration
from aladin_service.reports.correction_report import constants_words


def index_data(info: IndexInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {
        "calibration": calibration_data(info.calibration),
        "path": str(info.path),
        "built_at": _built_at(info),
        "pending": {target: pending._asdict() for target, pending in info.pending.items()},
        "memory": {target: memory._asdict() for target, memory in info.memory.items()},
        "skipped": asdict(info.skipped)
        | {"reasons": [each._asdict() for each in info.skipped.reasons]},
    }


def index_facts(info: IndexInfo) -> list[tuple[str, str]]:
    """Return the facts as readable names and values."""
    facts = [
        ("index", str(info.path)),
        ("generation", f"{info.generation}, built {_built_at(info)}"),
        ("model", info.model_id),
        ("alignment", "trained" if info.alignment_trained else "not trained: matching alone"),
        *([] if info.untrained is None else [("warning", info.untrained)]),
        ("size", f"{info.total_bytes / 1e6:,.1f} MB"),
        ("default candidates", str(info.default_candidates)),
    ]
    for target, collection in info.collections.items():
        facts += [
            (target, f"{collection.count:,}, {collection.skipped:,} skipped by the build"),
            *collection_facts(collection, info.default_candidates),
            ("  pending", "{0.added:,} added, {0.removed:,} removed".format(info.pending[target])),
            ("  memory", _memory(info.memory[target])),
            (
                "  filter fields",
                "all"
                if collection.filter_fields is None
                else ", ".join(collection.filter_fields) or "none",
            ),
        ]
    facts += _skipped_facts(info.skipped)
    if info.correction is not None:
        facts += [("hubness correction", line) for line in constants_words(info.correction)]
    return facts + calibration_facts(info.calibration)


def _skipped_facts(skipped: SkippedSummary) -> list[tuple[str, str]]:
    facts = [
        ("left out", f"{count:,} x {reason} ({', '.join(names[:3])}{', ...' if count > 3 else ''})")
        for reason, count, names in skipped.reasons
    ]
    if skipped.other_files:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in skipped.other_files.items())
        facts.append(("not photos", kinds))
    if skipped.not_followed is not None:
        facts.append(("not followed", skipped.not_followed))
    return facts


def _built_at(info: IndexInfo) -> str:
    return datetime.fromtimestamp(info.built_at_s, UTC).isoformat(timespec="seconds")


def recall_warnings(info: IndexInfo) -> list[str]:
    """List the first stages whose recall is below the one requested at their build."""
    return [
        f"{target}: {collection.ann.factory} finds {collection.ann.recall:.4f} of the nearest "
        f"{collection.ann.recall_at}, {collection.ann.recall_wanted} was wanted; "
        "allow it more memory, or choose another --ann"
        for target, collection in info.collections.items()
        if collection.ann.recall < collection.ann.recall_wanted
    ]


def calibration_data(calibration: Calibration | None) -> dict[str, Any] | None:
    """Return a calibration as JSON data."""
    if calibration is None:
        return None
    data: dict[str, Any] = asdict(calibration)
    del data["fitted_on"]["data_sample"]  # hashes, which tell people nothing
    return data


def calibration_facts(calibration: Calibration | None) -> list[tuple[str, str]]:
    """Return what the probabilities of hits were fitted on and how good they are."""
    if calibration is None:
        return [("probabilities", "none, not calibrated")]
    on = calibration.fitted_on
    split = "" if on.split is None else f", {on.split}"
    data = f"{on.photos:,} photos and {on.texts:,} texts ({on.data}{split})"
    unused = "not used, most photos are of other data: " if calibration.other_photos else ""
    return [
        ("probabilities", f"{unused}fitted on {data}"),
        ("  text to image", figures_fact(calibration.text_to_image)),
        ("  image to text", figures_fact(calibration.image_to_text)),
    ]


def figures_fact(direction: DirectionCalibration) -> str:
    """Describe the quality of the probabilities of a direction."""
    figures = direction.figures
    stages = "" if direction.aligned else "by the first stage alone; "
    return (
        f"{stages}calibration error {figures.ece:.3f}; AUROC of any match {figures.auroc:.3f}; "
        f"nothing matches: said of {figures.detected:.0%} of queries without a match, and of "
        f"{figures.false_alarms:.0%} of those with one"
    )


def taken_over_line(info: IndexInfo) -> str | None:
    """Report that a generation's calibration was fitted on photos of other data than its own."""
    calibration = info.calibration
    if calibration is None or not calibration.other_photos:
        return None
    return (
        f"the probabilities are not used: they were fitted on {calibration.fitted_on.data}, to "
        "which most photos of this index do not belong; to fit them to this index: aladin calibrate"
        f" CHECKPOINT DATA --index {info.path}"
    )


def collection_facts(collection: CollectionEntry, default_candidates: int) -> list[tuple[str, str]]:
    """Return how a collection stores and searches its items, as names and values."""
    tokens = (
        f"{collection.token_count:,} of {collection.token_dim} dimensions, {collection.token_dtype}"
    )
    return [
        ("  embeddings", f"{collection.embedding_dim} dimensions"),
        ("  tokens", tokens),
        ("  first stage", first_stage_fact(collection.ann)),
        ("  candidates", _candidates_fact(collection.tuning, default_candidates)),
    ]


def first_stage_fact(ann: AnnEntry) -> str:
    """Describe the first stage and its recall."""
    width = "" if ann.search_width is None else f", search width {ann.search_width}"
    more = "" if ann.oversample == 1 else f", {ann.oversample:g} times as many compared exactly"
    wanted = "" if ann.recall >= ann.recall_wanted else f", {100 * ann.recall_wanted:g} % wanted"
    return (
        f"{ann.factory}{width}{more}, finds {100 * ann.recall:.1f} % of the nearest "
        f"{ann.recall_at} ({ann.recall_queries} queries{wanted})"
    )


def _candidates_fact(tuning: Tuning | None, default: int) -> str:
    """Describe the number of candidates of a search."""
    if tuning is None:
        return f"{default}, not tuned"
    return (
        f"{tuning.candidates}, keep {100 * tuning.fidelity:.1f} % of the exhaustive top "
        f"{tuning.at} ({tuning.queries} queries)"
    )


def _memory(memory: MemoryEstimate) -> str:
    parts = (
        (memory.ann_bytes, "first stage"),
        (memory.embeddings_bytes, "embeddings"),
        (memory.tokens_bytes, "tokens"),
    )
    mapped = ", ".join(f"{size / 1e6:,.1f} MB {name}" for size, name in parts)
    return f"at most {mapped}, all mapped"


def engine_index_data(info: EngineInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {
        "path": str(info.path),
        "calibration": calibration_data(info.calibration),
    }


def engine_index_facts(info: EngineInfo) -> list[tuple[str, str]]:
    """Return the facts as readable names and values."""
    location = info.location
    there = ", ".join(map(str, info.generations))
    changed = "changed since it was pushed" if info.changed else "as it was pushed"
    facts = [
        ("index", str(info.path)),
        ("engine", f"Milvus at {location.url}, as {location.name}"),
        ("generation", f"{info.generation}, {changed}; in the engine: {there}"),
        ("model", info.model_id),
        ("alignment", "trained" if info.alignment_trained else "not trained: matching alone"),
        ("default candidates", str(info.default_candidates)),
    ]
    for target, collection in info.collections.items():
        facts += [
            (target, f"{info.counts[target]:,}, {collection.count:,} were pushed"),
            *collection_facts(collection, info.default_candidates),
        ]
    return facts + calibration_facts(info.calibration)
