"""What `aladin index info` says."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from index.info import IndexInfo, MemoryEstimate
from index.manifest import AnnEntry, Tuning


def index_data(info: IndexInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {
        "path": str(info.path),
        "built_at": _built_at(info),
        "pending": {target: pending._asdict() for target, pending in info.pending.items()},
        "memory": {target: memory._asdict() for target, memory in info.memory.items()},
    }


def index_facts(info: IndexInfo) -> list[tuple[str, str]]:
    """Return the facts as names and values for people."""
    facts = [
        ("index", str(info.path)),
        ("generation", f"{info.generation}, built {_built_at(info)}"),
        ("model", info.model_id),
        ("size", f"{info.total_bytes / 1e6:,.1f} MB"),
        ("default candidates", str(info.default_candidates)),
    ]
    for target, side in info.sides.items():
        facts += [
            (target, f"{side.count:,}, {side.left_out:,} left out"),
            ("  embeddings", f"{side.embedding_dim} dimensions"),
            (
                "  tokens",
                f"{side.token_count:,} of {side.token_dim} dimensions, {side.token_dtype}",
            ),
            ("  first stage", _first_stage(side.ann)),
            ("  candidates", _candidates(side.tuning, info.default_candidates)),
            ("  pending", "{0.added:,} added, {0.removed:,} removed".format(info.pending[target])),
            ("  memory", _memory(info.memory[target])),
            (
                "  filter fields",
                "all" if side.filter_fields is None else ", ".join(side.filter_fields) or "none",
            ),
        ]
    return facts


def _built_at(info: IndexInfo) -> str:
    return datetime.fromtimestamp(info.built_at_s, UTC).isoformat(timespec="seconds")


def recall_warnings(info: IndexInfo) -> list[str]:
    """Say which first stages find less than was asked for when they were built."""
    return [
        f"{target}: {side.ann.factory} finds {side.ann.recall:.4f} of the nearest "
        f"{side.ann.recall_at}, {side.ann.recall_wanted} was wanted; allow it more memory, or "
        "choose another --ann"
        for target, side in info.sides.items()
        if side.ann.recall < side.ann.recall_wanted
    ]


def _first_stage(ann: AnnEntry) -> str:
    width = "" if ann.search_width is None else f", search width {ann.search_width}"
    more = "" if ann.oversample == 1 else f", {ann.oversample:g} times as many compared exactly"
    wanted = "" if ann.recall >= ann.recall_wanted else f", {100 * ann.recall_wanted:g} % wanted"
    return (
        f"{ann.factory}{width}{more}, finds {100 * ann.recall:.1f} % of the nearest "
        f"{ann.recall_at} ({ann.recall_queries} queries{wanted})"
    )


def _candidates(tuning: Tuning | None, default: int) -> str:
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
