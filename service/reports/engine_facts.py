"""What `aladin index info` says of an index that an engine keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from index.remote.remote_info import RemoteInfo
from service.reports.index_facts import calibration_data, calibration_facts, side_facts


def engine_index_data(info: RemoteInfo) -> dict[str, Any]:
    """Return the facts as JSON data."""
    return asdict(info) | {
        "path": str(info.path),
        "calibration": calibration_data(info.calibration),
    }


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
            *side_facts(side, info.default_candidates),
        ]
    return facts + calibration_facts(info.calibration, info.fitted_photos_indexed)
