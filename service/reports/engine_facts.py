"""What `aladin index info` says of an index that an engine keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from index.remote.remote_info import RemoteInfo
from service.reports.index_facts import calibration_facts, candidates_fact, first_stage_fact


def engine_index_data(info: RemoteInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {"path": str(info.path)}


def engine_index_facts(info: RemoteInfo) -> list[tuple[str, str]]:
    """Return the facts as names and values for people."""
    location = info.location
    there = ", ".join(map(str, info.generations))
    changed = "changed since it was pushed" if info.changed else "as it was pushed"
    facts = [
        ("index", str(info.path)),
        ("engine", f"{location.engine} at {location.url}, as {location.name}"),
        ("generation", f"{info.generation}, {changed}; in the engine: {there}"),
        ("model", info.model_id),
        ("default candidates", str(info.default_candidates)),
    ]
    for target, side in info.sides.items():
        facts += [
            (target, f"{info.counts[target]:,}, {side.count:,} were pushed"),
            ("  embeddings", f"{side.embedding_dim} dimensions"),
            (
                "  tokens",
                f"{side.token_count:,} of {side.token_dim} dimensions, {side.token_dtype}",
            ),
            ("  first stage", first_stage_fact(side.ann)),
            ("  candidates", candidates_fact(side.tuning, info.default_candidates)),
        ]
    return facts + calibration_facts(info.calibration)
