"""The verdicts of a comparison, computed again from the ranks that are kept.

    python -m benchmarks.training.verdicts FOLDER
    python -m benchmarks.training.verdicts FOLDER OTHER... --out JOINED

FOLDER has the claims.json and the ranks.npz of a comparison's report. Every verdict that ranks
decide is computed from them, and compared with the one that is written there; one that differs ends
the command with exit code 1. With the folders of other seeds, perhaps of other machines, all runs
are judged together, and JOINED keeps both files of all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aladin_training.comparison.claims import judge
from aladin_training.comparison.kept import keep, load_sides
from benchmarks.lib.output import figures_parser, print_json


def main() -> None:
    parser = figures_parser(__doc__)
    parser.add_argument("folders", type=Path, metavar="FOLDER", nargs="+")
    parser.add_argument("--out", type=Path, metavar="JOINED", help="keep the runs of all folders")
    options = parser.parse_args()
    sides, kept = load_sides(*options.folders)
    judged = judge(sides)
    found = [
        {
            "claim": f"{each.claim.better} over {each.than}, by {each.claim.measure}",
            "runs": each.runs,
            "interval": None if each.found is None else each.found.interval,
            "verdict": str(each.verdict),
        }
        for each in judged
    ]
    print_json({"claims": found})
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        keep(options.out, sides, judged)
    if len(options.folders) == 1 and [each["verdict"] for each in found] != kept:
        sys.exit(f"kept are {', '.join(kept)}")


if __name__ == "__main__":
    main()
