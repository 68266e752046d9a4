"""Photos per second from tar files: streamed, read in random order, and only decoded.

    python -m benchmarks.training.streaming [--photos 512] [--batch 64] [--passes 9] [--json]

decoded     decodes and preprocesses photos that are already in memory, on all threads
in place    makes batches of random photos, each read at its position in a tar file
streamed    makes batches of photos read in order, through a shuffle buffer of four batches
resumed     makes the batches of the second half of a streamed epoch, skipping the first half

All make batches of the same photos of 500 x 375 pixels for an encoder that is trained; no network
runs. They take turns, pass by pass, so that other load on the machine slows all of them and the
ratios of medians remain comparable.
"""

from __future__ import annotations

import dataclasses
import io
import tarfile
import tempfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from aladin_network.config import ImagePreprocessing
from aladin_network.encoders.base import ImageInput
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import decode_image
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import PairDataset, PlannedBatches
from aladin_training.batches.items import PLAIN, THREADS
from aladin_training.batches.plan import BatchPlan
from aladin_training.data import read_records
from aladin_training.streaming.streamed_batches import StreamedBatches
from aladin_training.streaming.tar_stream import PhotoStream, open_stream
from benchmarks.lib.measuring import time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.small_collection import small_model

_SIZE_PX = (500, 375)
_ENCODER_PX = 224
_PHOTOS_A_TAR = 100


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("--photos", type=int, default=512, help="number of photos")
    parser.add_argument("--batch", type=int, default=64, help="photos per batch")
    parser.add_argument("--passes", type=int, default=9, help="timed passes over all photos")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_tars(Path(folder), options.photos)
        rates = measure(Path(folder), options.batch, options.passes)
    if options.json:
        print_json(rates)
        return
    rows = [[name, f"{rate:.0f}", f"{rate / rates['decoded']:.2f}"] for name, rate in rates.items()]
    print_rows(["", "photos/s", "ratio to decoded"], rows)


def write_tars(folder: Path, photos: int) -> None:
    """Write tar files of smooth, slightly noisy pictures, about as hard to decode as photos."""
    random = np.random.default_rng(0)
    for first in range(0, photos, _PHOTOS_A_TAR):
        with tarfile.open(folder / f"{first // _PHOTOS_A_TAR:05d}.tar", "w") as tar:
            for number in range(first, min(photos, first + _PHOTOS_A_TAR)):
                coarse = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8))
                smooth = np.asarray(coarse.resize(_SIZE_PX, Image.Resampling.BICUBIC), np.float32)
                noisy = np.clip(smooth + random.normal(0, 4, smooth.shape), 0, 255)
                target = io.BytesIO()
                Image.fromarray(noisy.astype(np.uint8)).save(target, "JPEG", quality=90)
                _add(tar, f"{number:09d}.jpg", target.getvalue())
                _add(tar, f"{number:09d}.txt", b"two dogs run on the green grass")


def measure(folder: Path, batch_size: int, passes: int) -> dict[str, float]:
    """Return photos per second for each measurement.

    Args:
        folder: Folder of tar files.
        batch_size: Number of photos per batch.
        passes: Number of timed passes over all photos.
    """
    model = _network()
    records = read_records(folder)
    pairs = PairDataset.prepare(
        records, model, folder / "cache", [PLAIN], "float32", NullProgress()
    )
    plan = BatchPlan(pairs.captions_of_photo, batch_size, 1, 1, "0")
    in_place = PlannedBatches(pairs, plan)
    stream = open_stream(folder, None, folder / "cache", NullProgress())
    photos = PhotoStream(
        stream, model.image.encoder, model.text.encoder, (PLAIN,), shuffle=4 * batch_size
    )
    streamed = StreamedBatches(photos, batch_size, 1, "0")
    half = streamed.batches_per_epoch // 2
    shown = streamed.batches_per_epoch * batch_size
    runs: dict[str, tuple[int, Callable[[int], object]]] = {
        "decoded": (shown, _decoding(model, [record.photo for record in records][:shown])),
        "in place": (shown, lambda turn: _count(in_place.epoch(turn % passes))),
        "streamed": (shown, lambda turn: _count(streamed.epoch(turn % passes))),
        "resumed": (
            shown - half * batch_size,
            lambda turn: _count(streamed.epoch(turn % passes, start=half)),
        ),
    }
    times = time_in_turn({name: run for name, (_, run) in runs.items()}, passes, warm_up=1)
    return {name: 1000 * count / float(np.median(times[name])) for name, (count, _) in runs.items()}


def _network() -> AladinModel:
    """Make a network with trainable encoders; its photos have the usual size."""
    small = small_model(8, 8)
    encoder = dataclasses.replace(
        small.config.image_encoder,
        frozen=False,
        preprocessing=ImagePreprocessing(height_px=_ENCODER_PX, width_px=_ENCODER_PX),
    )
    return AladinModel.create(
        dataclasses.replace(
            small.config,
            image_encoder=encoder,
            text_encoder=dataclasses.replace(small.config.text_encoder, frozen=False),
        ),
        small.text.encoder.tokenizer,
    )


def _decoding(model: AladinModel, files: list[PhotoFile]) -> Callable[[int], object]:
    contents = [file.read() for file in files]
    encoder = model.image.encoder

    def decode(content: bytes) -> ImageInput:
        return encoder.preprocess(decode_image(content))

    def run(_: int) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for _done in pool.map(decode, contents):
                pass

    return run


def _count(batches: Generator[Batch]) -> int:
    return sum(1 for _ in batches)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    main()
