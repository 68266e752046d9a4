"""Measures the costs that `aladin index plan` computes with, on this machine.

    python -m benchmarks.search.constants [--out FILE] [--items 100000 400000] [--only SECTION ...]

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
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from aladin_index.ann import faiss
from aladin_index.capacity.constants import (
    PACKAGED_CONSTANTS,
    SCHEMA_VERSION,
    Constants,
    EncodingConstants,
    FirstStageConstants,
    FormConstants,
    Machine,
    read_constants,
)
from aladin_network.config import dump_config, parse_config
from aladin_network.files import write_json
from aladin_network.graphs.ways import query_network
from aladin_network.inference import (
    PHOTOS_AT_A_TIME,
    choose_precision,
    encode_photos,
    encode_texts,
)
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import read_image
from benchmarks.lib.measuring import one_thread, quiet_median_s, quiet_time
from benchmarks.lib.served_index import SIZES, real_size_model
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.constants_engine import measure_engine
from benchmarks.search.constants_first_stage import measure_first_stage
from benchmarks.search.constants_index import measure_forms, measure_index
from benchmarks.search.scale import processor_count

_PHOTOS, _PHOTO_PX, _TEXTS = 64, (500, 375), 20
# A query of 12 words, as in the other measurements.
_QUERY = "two brown dogs run after a ball on the green wet grass"

# The vector database comes first, because it is the most likely not to start; "index" needs the
# sections before it.
SECTIONS = ("engine", "first_stage", "forms", "index", "encoding")


def measure_encoding(photos: int = _PHOTOS, texts: int = _TEXTS) -> EncodingConstants:
    """Measure photos encoded as in a build, and queries as in the service, one at a time.

    Args:
        photos: Number of photos to read, decode and encode.
        texts: Number of texts to time.
    """
    model = real_size_model([_QUERY], SIZES["bert-base"])
    precision = choose_precision("auto", "cpu")
    asking = query_network(model, "text", precision=precision)
    with one_thread():
        return EncodingConstants(
            network=f"MobileNetV2 for photos, BERT's base in {precision} for texts",
            photo_s=_photo_s(model, photos),
            text_s=quiet_median_s(lambda _: encode_texts(asking, [_QUERY]), texts),
        )


def _photo_s(model: AladinModel, count: int) -> float:
    random = np.random.default_rng(0)
    width, height = _PHOTO_PX
    with tempfile.TemporaryDirectory() as folder:
        # Smooth, so that its file is as long as that of a real photo.
        small = random.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        path = Path(folder) / "photo.jpg"
        Image.fromarray(small).resize(_PHOTO_PX, Image.Resampling.BICUBIC).save(path, quality=90)
        encode_photos(model, [read_image(path)])  # the first call prepares kernels
        with quiet_time() as encoded:
            for start in range(0, count, PHOTOS_AT_A_TIME):
                several = min(PHOTOS_AT_A_TIME, count - start)
                encode_photos(model, [read_image(path) for _ in range(several)])
        return encoded.seconds / count


class MeasuredSizes(NamedTuple):
    """Numbers of photos to measure with.

    Attributes:
        first_stages: Numbers of photos in the FAISS indexes, ascending.
        stored_photos: Number of photos whose tokens are scored; more than fit into a processor's
            caches.
        index_photos: Number of photos in the index that is built and searched.
        engine_photos: Number of photos in the vector database.
    """

    first_stages: Sequence[int] = (100_000, 400_000)
    stored_photos: int = 60_000
    index_photos: int = 5000
    engine_photos: int = 20_000


QUICK_SIZES = MeasuredSizes((4000, 12_000), 2000, 2000, 2000)


def main() -> None:
    """Run the measurements, and write the constants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=MeasuredSizes().first_stages)
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--from", dest="before", type=Path, default=PACKAGED_CONSTANTS)
    parser.add_argument("--out", type=Path, help="file of the constants")
    parser.add_argument("--quick", action="store_true", help="few photos, to try it out")
    options = parser.parse_args()
    command = " ".join(["python -m benchmarks.search.constants", *sys.argv[1:]])
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
    """Measure some sections; the others keep their earlier values.

    Args:
        sections: Names of sections from `SECTIONS`.
        before: Constants file, read for the sections that are not measured.
        command: Command to be recorded with the constants.
        sizes: Numbers of photos to measure with.
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
