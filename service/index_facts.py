"""What `aladin index info` says."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from index.info import IndexInfo


def index_data(info: IndexInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {"path": str(info.path), "built_at": _built_at(info)}


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
        ann = side.ann
        width = "" if ann.search_width is None else f", search width {ann.search_width}"
        facts += [
            (target, f"{side.count:,}, {side.left_out:,} left out"),
            ("  embeddings", f"{side.embedding_dim} dimensions"),
            (
                "  tokens",
                f"{side.token_count:,} of {side.token_dim} dimensions, {side.token_dtype}",
            ),
            (
                "  first stage",
                f"{ann.factory}{width}, finds {100 * ann.recall:.1f} % of the nearest "
                f"{ann.recall_at} ({ann.recall_queries} queries)",
            ),
        ]
    return facts


def _built_at(info: IndexInfo) -> str:
    return datetime.fromtimestamp(info.built_at_s, UTC).isoformat(timespec="seconds")
