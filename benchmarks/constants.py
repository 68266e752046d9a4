"""Measures the costs that `aladin index plan` computes with, on this machine.

    python -m benchmarks.constants [--out FILE] [--items 100000 400000] [--only SECTION ...]

engine       a Milvus server, started here (the package milvus==2.3.5)
first_stage  FAISS on synthetic photos' embeddings: exact search, lists, training, the width that
             an ann_recall of 0.99 needs at each number of --items
forms        packing and scoring tokens in each stored form; a page from the disk
index        a real index of 5,000 photos, less what its stages take: processes, files, the rest
             of a search
encoding     a network of the size of MobileNetV2 and BERT's base

What is not measured is kept as it is in --from. On stdout, or in --out, the constants as
`aladin index plan --constants FILE` takes them. Some six minutes and 2 GB of disk and of memory on
two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from aladin.atomic import write_json
from aladin.strict_config import dump_config, parse_config
from benchmarks.constants_encoding import measure_encoding
from benchmarks.constants_engine import measure_engine
from benchmarks.constants_first_stage import measure_first_stage
from benchmarks.constants_index import measure_index
from benchmarks.constants_tokens import measure_forms
from benchmarks.scale import processor_count
from benchmarks.synthetic import SyntheticPhotos
from benchmarks.synthetic_sources import find_source
from index.ann.faiss_library import faiss
from index.plan.constants import (
    PACKAGED_CONSTANTS,
    SCHEMA_VERSION,
    Constants,
    FirstStageConstants,
    FormConstants,
    Machine,
    read_constants,
)

# The engine first: it is what most easily does not start, and "index" needs those before it.
SECTIONS = ("engine", "first_stage", "forms", "index", "encoding")


class MeasuredSizes(NamedTuple):
    """How many photos are measured with.

    Attributes:
        first_stages: of FAISS's indexes, ascending.
        stored_photos: whose tokens are scored; more than a processor's caches hold.
        index_photos: of the index that is built and searched.
        engine_photos: in the engine.
    """

    first_stages: Sequence[int] = (100_000, 400_000)
    stored_photos: int = 60_000
    index_photos: int = 5000
    engine_photos: int = 20_000


QUICK_SIZES = MeasuredSizes((4000, 12_000), 2000, 2000, 2000)


def main() -> None:
    """Measure, and write the constants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=MeasuredSizes().first_stages)
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--from", dest="before", type=Path, default=PACKAGED_CONSTANTS)
    parser.add_argument("--out", type=Path, help="file of the constants")
    parser.add_argument("--quick", action="store_true", help="few photos, to try it out")
    options = parser.parse_args()
    command = " ".join(["python -m benchmarks.constants", *sys.argv[1:]])
    sizes = MeasuredSizes(first_stages=sorted(options.items))
    if options.quick:
        sizes = QUICK_SIZES
    measured = measure(options.only, options.before, command, sizes)
    data = dump_config(measured)
    if options.out is None:
        print(json.dumps(data, indent=2))
    else:
        write_json(options.out, data)


def measure(sections: Sequence[str], before: Path, command: str, sizes: MeasuredSizes) -> Constants:
    """Measure some sections; the others stay as they were.

    Args:
        sections: of `SECTIONS`.
        before: constants; read where a section is not measured.
        command: to be noted.
        sizes: how much is measured with.
    """
    data: dict[str, Any] = {}
    if set(sections) != set(SECTIONS):
        data = dump_config(read_constants(before))
    data |= {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "measured_on": datetime.now(UTC).date().isoformat(),
        "machine": dump_config(this_machine()),
    }
    photos = SyntheticPhotos(find_source())
    for section in (each for each in SECTIONS if each in sections):
        print(f"measuring {section}", file=sys.stderr, flush=True)
        if section == "first_stage":
            data["first_stage"] = dump_config(measure_first_stage(photos, sizes.first_stages))
        elif section == "forms":
            forms = measure_forms(photos, sizes.stored_photos)
            data["forms"] = {name: dump_config(form) for name, form in forms.items()}
        elif section == "index":
            around = measure_index(
                parse_config(FirstStageConstants, data["first_stage"], "first_stage"),
                parse_config(FormConstants, data["forms"]["int8"], "int8"),
                sizes.index_photos,
            )
            data |= {name: dump_config(each) for name, each in around._asdict().items()}
        elif section == "encoding":
            data["encoding"] = dump_config(measure_encoding())
        else:
            data["engine"] = dump_config(measure_engine(photos, sizes.engine_photos))
    return parse_config(Constants, data, command)


def this_machine() -> Machine:
    """Describe this machine."""
    return Machine(
        processor=_processor(),
        cores=processor_count(),
        threads=faiss.omp_get_max_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
