"""The response of ``/v1/index/state``: history and quality of the index, without local paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict, Field

from aladin_index.format.manifest import Manifest
from aladin_index.generations.history import GenerationRecord, earlier_generations
from aladin_network.calibration.measures import CalibrationFigures, DirectionFigures
from aladin_network.types import Target
from aladin_service.http.error_responses import without_paths
from aladin_service.http.upgrade_state import UpgradeState, describe_upgrade
from aladin_service.search.calibration_answers import (
    CalibratedOn,
    CalibrationFacts,
    ShortTextsFacts,
)
from aladin_service.work.report_jobs import IndexReport

Standing = Literal["live", "refused", "earlier", "rolled back"]


class _Part(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ItemCountsAnswer(_Part):
    """Item counts of one collection: `built` + `added` - `deleted` = `live`."""

    built: int = Field(description="Items in the generation's files.")
    added: int | None = Field(description="Items added since and still live; null for an engine.")
    deleted: int | None = Field(description="Built items deleted since; null for an engine.")
    live: int = Field(description="Items that a search may return.")


class RecallPointAnswer(_Part):
    """Recall of one setting of the ANN search."""

    search_width: int | None = Field(description="Null if every item is compared.")
    oversample: float
    recall: float
    search_ms: float | None = Field(description="Null if not timed.")


class FirstStageState(_Part):
    """The ANN of one collection, and its measurements."""

    asked: str
    factory: str
    search_width: int | None
    oversample: float
    recall: float
    recall_at: int
    recall_queries: int
    recall_wanted: float
    curve: list[RecallPointAnswer]


class FidelityPointAnswer(_Part):
    """Share of the exhaustive order that one number of candidates keeps."""

    candidates: int
    fidelity: float
    search_ms: float


class TuningState(_Part):
    """The number of candidates that `aladin index tune` chose, and its measurements."""

    candidates: int
    fidelity: float
    fidelity_wanted: float
    at: int
    queries: int
    curve: list[FidelityPointAnswer]


class LeftOutItem(_Part):
    """An item skipped by the build."""

    id: str
    reason: str


class LeftOutPage(_Part):
    """Some of the skipped items, in input order."""

    total: int
    offset: int
    items: list[LeftOutItem] = Field(description="Empty for an index in an engine.")


class SideState(_Part):
    """The images, or the texts."""

    counts: ItemCountsAnswer
    embedding_dim: int
    token_dim: int
    token_count: int
    token_dtype: str
    filter_fields: list[str] | None = Field(
        description="Fields that are indexed for filters; null: all."
    )
    ann: FirstStageState
    tuning: TuningState | None
    left_out: LeftOutPage


class GenerationSide(_Part):
    """One collection of a generation in the history."""

    built: int
    added: int | None = Field(description="Items added since; null if unreadable.")
    deleted: int | None = Field(description="Built items deleted since.")
    left_out: int
    ann_factory: str
    ann_recall: float
    candidates: int
    tuned: bool


class GenerationState(_Part):
    """A generation on the disk or in the vector database."""

    generation: int
    published_at: datetime | None = Field(
        description="Time at which its files were finished; null for an engine."
    )
    made_by: str | None = Field(description="Command that wrote it; null if not recorded.")
    standing: Standing = Field(
        description="live: answers searches; refused: the newest, but invalid; earlier: replaced,"
        " available for rollback; rolled back: none of those that led to the live one."
    )
    bytes: int | None = Field(
        description="Size of its files, including those shared with other generations; null for an"
        " engine."
    )
    images: GenerationSide | None
    texts: GenerationSide | None
    calibrated: bool


class EvaluationState(_Part):
    """Results of `aladin evaluate --index` for a generation."""

    generation: int
    is_live: bool = Field(description="Whether the generation that was measured is the live one.")
    measured_at: datetime
    data: str = Field(description="Name of the data set, the last part of its path.")
    split: str | None
    images: int
    texts: int
    figures: dict[str, Any] = Field(description="In the form of `aladin evaluate --json`.")
    curve: dict[str, Any] | None = Field(
        description="In the form of `aladin evaluate --curve FILE.json`; null if not measured."
    )


class FittedOnState(CalibratedOn):
    """The queries whose scores the probabilities were fitted to."""

    prior: float = Field(description="Assumed share of queries that have a match.")


class ShortTextsState(ShortTextsFacts):
    """Reliability of the probabilities of short texts that search images."""

    figures: DirectionFigures


class CalibrationState(CalibrationFacts):
    """Data of the probability fit, and the reliability of the probabilities."""

    fitted_on: FittedOnState
    figures: CalibrationFigures
    short_texts: ShortTextsState | None = Field(
        default=None, description="Null if no short texts were fitted."
    )


class PartSize(_Part):
    """Bytes of one part of the index on the disk."""

    part: str
    bytes: int


class DamagedPart(_Part):
    """An index file that cannot be read; its data are missing in this answer."""

    name: str
    reason: str


class IndexStateAnswer(_Part):
    """The live generation, the earlier ones, and their measurements."""

    generation: int
    live_since: datetime | None = Field(
        description="Null if the newest generation was refused and this one answers instead, and"
        " for an engine."
    )
    engine: str | None = Field(
        default=None, description="Engine that stores the index, such as milvus; null for files."
    )
    model_id: str
    default_candidates: int
    images: SideState | None
    texts: SideState | None
    disk: list[PartSize] = Field(description="Each file is counted once; the largest part first.")
    generations: list[GenerationState] = Field(description="Newest first.")
    calibration: CalibrationState | None
    evaluations: list[EvaluationState] = Field(description="Newest first.")
    damaged: list[DamagedPart]
    upgrade: UpgradeState | None = Field(
        default=None, description="An unfinished upgrade to another model; null if there is none."
    )


def build_state(report: IndexReport) -> IndexStateAnswer:
    """Convert a worker's report into the answer."""
    live, history = report.manifest, report.history
    is_current = history.current == live.generation
    manifests = {record.manifest.generation: record.manifest for record in history.generations}
    manifests[live.generation] = live
    led_to_it = earlier_generations(live.generation, manifests, manifests.__getitem__)
    return IndexStateAnswer(
        generation=live.generation,
        live_since=_moment(history.current_since_s) if is_current else None,
        engine=report.engine,
        model_id=live.model.id,
        default_candidates=live.default_candidates,
        images=_side(report, "images"),
        texts=_side(report, "texts"),
        disk=[
            PartSize(part=part, bytes=size)
            for part, size in sorted(report.disk.items(), key=lambda item: -item[1])
        ],
        generations=[
            _generation(record, live.generation, history.current, led_to_it)
            for record in history.generations
        ],
        calibration=_calibration(live),
        evaluations=[
            EvaluationState(
                generation=evaluation.generation,
                is_live=evaluation.generation == live.generation,
                measured_at=_moment(evaluation.measured_at_s),
                data=_name(evaluation.data),
                split=evaluation.split,
                images=evaluation.images,
                texts=evaluation.texts,
                figures=evaluation.figures,
                curve=evaluation.curve,
            )
            for record in history.generations
            for evaluation in record.evaluations
        ],
        damaged=[DamagedPart.model_validate(each) for each in history.damaged],
        upgrade=describe_upgrade(report.upgrade, report.counts),
    )


def _side(report: IndexReport, target: Target) -> SideState | None:
    entry = report.manifest.side(target)
    if entry is None:
        return None
    left_out = report.left_out[target]
    return SideState(
        counts=ItemCountsAnswer.model_validate(report.counts[target]),
        embedding_dim=entry.embedding_dim,
        token_dim=entry.token_dim,
        token_count=entry.token_count,
        token_dtype=entry.token_dtype,
        filter_fields=entry.filter_fields,
        ann=FirstStageState.model_validate(entry.ann),
        tuning=None if entry.tuning is None else TuningState.model_validate(entry.tuning),
        left_out=LeftOutPage(
            total=(report.left_out_total or {}).get(target, entry.left_out),
            offset=report.offset,
            items=[LeftOutItem(id=each.id, reason=without_paths(each.reason)) for each in left_out],
        ),
    )


def _generation(
    record: GenerationRecord, live: int, current: int, led_to_live: Sequence[int]
) -> GenerationState:
    manifest = record.manifest
    return GenerationState(
        generation=manifest.generation,
        published_at=_moment(record.published_at_s),
        made_by=manifest.made_by,
        standing=_standing(manifest.generation, live, current, led_to_live),
        bytes=sum(entry.bytes for entry in manifest.files.values()) if manifest.files else None,
        images=_generation_side(record, "images"),
        texts=_generation_side(record, "texts"),
        calibrated=manifest.calibration is not None,
    )


def _standing(generation: int, live: int, current: int, led_to_live: Sequence[int]) -> Standing:
    if generation == live:
        return "live"
    if generation == current:
        return "refused"
    return "earlier" if generation in led_to_live else "rolled back"


def _generation_side(record: GenerationRecord, target: Target) -> GenerationSide | None:
    entry = record.manifest.side(target)
    if entry is None:
        return None
    pending = record.pending.get(target)
    return GenerationSide(
        built=entry.count,
        added=None if pending is None else pending.added,
        deleted=None if pending is None else pending.removed,
        left_out=entry.left_out,
        ann_factory=entry.ann.factory,
        ann_recall=entry.ann.recall,
        candidates=record.manifest.candidates(target),
        tuned=entry.tuning is not None,
    )


def _calibration(manifest: Manifest) -> CalibrationState | None:
    if manifest.calibration is None:
        return None
    state = CalibrationState.model_validate(manifest.calibration)
    return state.model_copy(update={"fitted_photos_indexed": manifest.fitted_photos_indexed})


def _name(data: str) -> str:
    """Return the last part of a path; the folders above it stay private."""
    return data.rstrip("/").rsplit("/", 1)[-1]


@overload
def _moment(seconds: float) -> datetime: ...
@overload
def _moment(seconds: float | None) -> datetime | None: ...
def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
