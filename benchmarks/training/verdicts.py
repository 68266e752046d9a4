"""The verdicts of a comparison, computed again from the ranks that are kept.

    python -m benchmarks.training.verdicts FOLDER

FOLDER has the claims.json and the ranks.npz of a comparison's report. Every verdict that ranks
decide is computed from them, and compared with the one that is written there; one that differs ends
the command with exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from aladin_training.comparison.claims import judge
from aladin_training.comparison.kept import load_sides
from benchmarks.lib.output import figures_parser, print_json


def recomputed(folder: Path) -> list[dict[str, Any]]:
    """Return the verdict on each claim, beside the one that is kept."""
    sides, kept = load_sides(folder)
    return [
        {
            "claim": f"{each.claim.better} over {each.than}, by {each.claim.measure}",
            "interval": None if each.found is None else each.found.interval,
            "verdict": str(each.verdict),
            "kept": verdict,
        }
        for each, verdict in zip(judge(sides), kept, strict=True)
    ]


def main() -> None:
    parser = figures_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    found = recomputed(parser.parse_args().folder)
    print_json({"claims": found})
    if any(each["verdict"] != each["kept"] for each in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
