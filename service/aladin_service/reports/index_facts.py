"""The facts printed by `aladin index info`, for an index in files or a vector database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from aladin_index.engines.engine_index import EngineInfo
from aladin_index.format.left_out import LeftOut
from aladin_index.format.manifest import AnnEntry, CollectionEntry, Tuning
from aladin_index.generations.info import IndexInfo, MemoryEstimate
from aladin_index.search.unreliable import unreliable_reason
from aladin_network.calibration.calibration import LEAST_AUROC, Calibration
from aladin_network.calibration.fitted_on import FittedOn
from aladin_network.calibration.measures import DirectionFigures
from aladin_service.reports.correction_report import constants_words

# With ten times as many non-matching items, the best of them scores half a standard deviation
# higher, so the same score gap means that much less.
_FAR = 10

# If an index contains at least this share of the photos of the calibration, it counts as an index
# of those photos.
_MOST = 0.5


def index_data(info: IndexInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {
        "calibration": calibration_data(info.calibration),
        "path": str(info.path),
        "built_at": _built_at(info),
        "pending": {target: pending._asdict() for target, pending in info.pending.items()},
        "memory": {target: memory._asdict() for target, memory in info.memory.items()},
        "left_out": asdict(info.left_out)
        | {"reasons": [each._asdict() for each in info.left_out.reasons]},
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
    for target, side in info.sides.items():
        facts += [
            (target, f"{side.count:,}, {side.left_out:,} skipped by the build"),
            *side_facts(side, info.default_candidates),
            ("  pending", "{0.added:,} added, {0.removed:,} removed".format(info.pending[target])),
            ("  memory", _memory(info.memory[target])),
            (
                "  filter fields",
                "all" if side.filter_fields is None else ", ".join(side.filter_fields) or "none",
            ),
        ]
    facts += _left_out_facts(info.left_out)
    if info.correction is not None:
        facts += [("hubness correction", line) for line in constants_words(info.correction)]
    return facts + calibration_facts(info.calibration, info.fitted_photos_indexed)


def _left_out_facts(left_out: LeftOut) -> list[tuple[str, str]]:
    facts = [
        ("left out", f"{count:,} x {reason} ({', '.join(names[:3])}{', ...' if count > 3 else ''})")
        for reason, count, names in left_out.reasons
    ]
    if left_out.other_files:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in left_out.other_files.items())
        facts.append(("not photos", kinds))
    if left_out.not_followed is not None:
        facts.append(("not followed", left_out.not_followed))
    return facts


def _built_at(info: IndexInfo) -> str:
    return datetime.fromtimestamp(info.built_at_s, UTC).isoformat(timespec="seconds")


def recall_warnings(info: IndexInfo) -> list[str]:
    """List the first stages whose recall is below the one requested at their build."""
    return [
        f"{target}: {side.ann.factory} finds {side.ann.recall:.4f} of the nearest "
        f"{side.ann.recall_at}, {side.ann.recall_wanted} was wanted; allow it more memory, or "
        "choose another --ann"
        for target, side in info.sides.items()
        if side.ann.recall < side.ann.recall_wanted
    ]


def calibration_warnings(info: IndexInfo) -> list[str]:
    """List the collections with far more or fewer items than the calibration was fitted on."""
    if info.calibration is None or info.calibration.fitted_on.searched != "split":
        return []
    fitted_on = info.calibration.fitted_on
    searched = {"images": fitted_on.photos, "texts": fitted_on.texts}
    return [
        f"probabilities were fitted among {searched[target]:,} {target}, this index has "
        f"{side.count:,}; the same score gap is "
        + ("weaker" if side.count > searched[target] else "stronger")
        + f" evidence here: fit them again with aladin calibrate --index {info.path}"
        for target, side in info.sides.items()
        if not searched[target] / _FAR <= side.count <= searched[target] * _FAR
    ]


def calibration_data(calibration: Calibration | None) -> dict[str, Any] | None:
    """Return a calibration as JSON data, with the directions that it is not reliable for."""
    if calibration is None:
        return None
    data: dict[str, Any] = asdict(calibration)
    data["unreliable"] = calibration.unreliable
    for sample in ("photo_sample", "data_sample"):
        del data["fitted_on"][sample]  # hashes, which tell people nothing
    return data


def calibration_facts(
    calibration: Calibration | None, photos_indexed: float | None
) -> list[tuple[str, str]]:
    """Return the reliability of the probabilities of hits, as names and values.

    Args:
        calibration: Calibration of the index, or None if it has none.
        photos_indexed: Share of the photos used for the fit that are indexed, see `Manifest`.
    """
    if calibration is None:
        return [("probabilities", "none, not calibrated")]
    on, figures = calibration.fitted_on, calibration.figures
    split = "" if on.split is None else f", {on.split}"
    return [
        (
            "probabilities",
            f"fitted on {on.photos:,} photos and {on.texts:,} texts ({on.data}{split})",
        ),
        ("  fitted photos", _photos_fact(on, photos_indexed)),
        ("  fitted texts", lengths_fact(on)),
        ("  text to image", _probability_figures(figures.text_to_image)),
        *_short_facts(calibration),
        ("  image to text", _probability_figures(figures.image_to_text)),
        *(
            (f"  {direction}", f"never judged, no probability is shown: {reason}")
            for direction, reason in unreliable_kinds(calibration)
        ),
    ]


def taken_over_line(info: IndexInfo) -> str | None:
    """Report that a generation's calibration was fitted on photos other than its own.

    Returns:
        None where the calibration was fitted to this index, or where at least half of the photos
        fitted to are in it: then it was fitted on these photos, or on a sample of them.
    """
    calibration, share = info.calibration, info.fitted_photos_indexed
    if calibration is None or "images" not in info.sides:
        return None
    on = calibration.fitted_on
    if calibration.other_photos:
        return (
            f"the probabilities are not used: they were fitted on {on.data}, to which most photos "
            "of this index do not belong; to fit them to this index: aladin calibrate CHECKPOINT "
            f"DATA --index {info.path}"
        )
    if share is None and (on.photo_sample is not None or on.searched == "index"):
        return None
    if share is not None and share >= _MOST:
        return None
    split = "" if on.split is None else f", split {on.split}"
    return (
        f"the probabilities are the model's, fitted on {on.photos:,} photos of {on.data}{split}: "
        f"{_photos_fact(on, share)}; to fit them to this index: aladin calibrate CHECKPOINT DATA "
        f"--index {info.path}"
    )


def lengths_fact(fitted_on: FittedOn) -> str:
    """Describe the lengths of the texts that a calibration was fitted on."""
    lengths = fitted_on.text_lengths
    if lengths is None:
        return "their lengths were not recorded"
    return f"{lengths.low} to {lengths.high} tokens"


def unreliable_kinds(calibration: Calibration) -> Iterator[tuple[str, str]]:
    """Yield the name of each kind of query without reliable probabilities, and the reason."""
    codes = calibration.unreliable
    kinds = {
        "text to image": codes["captions"],
        "short texts": None if calibration.short_texts is None else codes["short_texts"],
        "image to text": codes["image_to_text"],
    }
    for kind, code in kinds.items():
        if code is not None:
            reason = unreliable_reason(code, remedy=True)
            if code == "weak_calibration":
                reason += f" (AUROC of any match below {LEAST_AUROC:g})"
            yield kind, reason


def _short_facts(calibration: Calibration) -> Iterator[tuple[str, str]]:
    short = calibration.short_texts
    if short is None:
        yield "  short texts", "not fitted; texts shorter than captions are not judged"
    else:
        lengths = f"{short.lengths.low} to {short.lengths.high} tokens"
        yield (
            "  short texts",
            f"{short.texts:,} of {lengths}; {_probability_figures(short.figures)}",
        )


def _photos_fact(fitted_on: FittedOn, indexed: float | None) -> str:
    if fitted_on.photo_sample is None:
        return "which photos was not recorded"
    if indexed is None:
        return "fitted to this index" if fitted_on.searched == "index" else "no photos here"
    if indexed == 0:
        return "none of them is in this index"
    return f"about {indexed:.0%} of them are in this index"


def _probability_figures(figures: DirectionFigures) -> str:
    aligned = figures.aligned
    auroc = aligned.auroc["probability"]
    return (
        f"ECE {aligned.hits.ece:.3f} of hits, {aligned.match.ece:.3f} of any match; AUROC of any "
        f"match {auroc.value:.3f} ({auroc.low:.3f} to {auroc.high:.3f}); no match below "
        f"{aligned.no_match.below:.3f}"
    )


def side_facts(side: CollectionEntry, default_candidates: int) -> list[tuple[str, str]]:
    """Return how a collection stores and searches its items, as names and values."""
    tokens = f"{side.token_count:,} of {side.token_dim} dimensions, {side.token_dtype}"
    return [
        ("  embeddings", f"{side.embedding_dim} dimensions"),
        ("  tokens", tokens),
        ("  first stage", first_stage_fact(side.ann)),
        ("  candidates", _candidates_fact(side.tuning, default_candidates)),
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
    for target, side in info.sides.items():
        facts += [
            (target, f"{info.counts[target]:,}, {side.count:,} were pushed"),
            *side_facts(side, info.default_candidates),
        ]
    return facts + calibration_facts(info.calibration, info.fitted_photos_indexed)
