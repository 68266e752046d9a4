"""Measures how fast the network encodes photos and texts, by torch and by its exported graphs.

    python -m benchmarks.search.encoding [CHECKPOINT] [--threads 1] [--seconds 2] [--json]

CHECKPOINT has been exported by `aladin export onnx`; without it, a network of random weights of the
size of MobileNetV2 at 384 px and of MiniLM, or of BERT's base (--texts), is exported first, which
takes half a minute. Every way encodes the same decoded arrays and tokenised texts, in turn; a time
is the median of its runs, of each the smaller of wall-clock and processor time. Differences from
torch are the largest of the numbers of embeddings and tokens.

torch           as in the service
channels-last   torch with the weights and pixels of photos in the order of its convolutions
onnxruntime     the graphs by ONNX Runtime
torch, bfloat16 texts of queries

Photos are encoded one at a time and by the batch of a build, texts one at a time and 16 together.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.graphs.export import export_graphs
from aladin_network.graphs.loading import load_graphs
from aladin_network.inference import PHOTOS_AT_A_TIME, Network
from aladin_network.model import AladinModel
from aladin_network.scoring.encoding import Encoding
from benchmarks.lib.measuring import one_thread, quiet_time
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.served_index import SIZES, real_size_model

_QUERY = "two brown dogs run after a ball on the green wet grass"
_TEXTS = 16
_PHOTO_PX = (500, 375)


class EncodingTime(NamedTuple):
    """Measured time of one way to encode.

    Attributes:
        way: Name of the way.
        items: "photos" or "texts".
        batch: Number of items that are encoded together.
        ms: Median milliseconds of an item.
        per_second: Number of items a second.
        difference: Largest difference of a number from torch's.
    """

    way: str
    items: str
    batch: int
    ms: float
    per_second: float
    difference: float


def measure(checkpoint: Path, seconds: float) -> list[EncodingTime]:
    """Measure all ways on as many threads as torch has.

    Args:
        checkpoint: Folder of an exported checkpoint.
        seconds: Time to spend on each way and batch.
    """
    model = load_checkpoint(checkpoint).model
    last: AladinModel = cast(Any, copy.deepcopy(model)).to(memory_format=torch.channels_last)
    graphs = load_graphs(checkpoint).model
    photos: dict[str, Network] = {"torch": model, "channels-last": last, "onnxruntime": graphs}
    reduced = model.with_texts_in_bfloat16()
    texts: dict[str, Network] = {"torch": model, "torch, bfloat16": reduced, "onnxruntime": graphs}
    inputs = _photos(max(PHOTOS_AT_A_TIME, 2))
    found: list[EncodingTime] = []
    for batch in (1, PHOTOS_AT_A_TIME):
        runs = {name: _photo_run(name, each, inputs[:batch]) for name, each in photos.items()}
        found += _times("photos", batch, runs, seconds)
    for batch in (1, _TEXTS):
        tokens = model.text.encoder.tokenize([_QUERY] * batch)
        runs = {name: _text_run(each, tokens) for name, each in texts.items()}
        found += _times("texts", batch, runs, seconds)
    return found


def _photos(count: int) -> list[Image.Image]:
    random = np.random.default_rng(0)
    width, height = _PHOTO_PX
    small = random.integers(0, 256, (count, height // 8, width // 8, 3), dtype=np.uint8)
    return [Image.fromarray(each).resize(_PHOTO_PX, Image.Resampling.BICUBIC) for each in small]


def _photo_run(name: str, model: Network, photos: Sequence[Image.Image]) -> Callable[[], Encoding]:
    encoder = model.image.encoder
    batch = encoder.collate([encoder.preprocess(photo) for photo in photos])
    if name == "channels-last":
        batch = batch.contiguous(memory_format=torch.channels_last)
    return lambda: model.infer_images(batch)


def _text_run(model: Network, batch: TokenizedTexts) -> Callable[[], Encoding]:
    return lambda: model.infer_texts(batch)


def _times(
    items: str, batch: int, runs: Mapping[str, Callable[[], Encoding]], seconds: float
) -> list[EncodingTime]:
    expected = runs["torch"]()
    differences = {name: _difference(run(), expected) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    until_s = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < until_s:
        for name, run in runs.items():
            with quiet_time() as taken:
                run()
            times[name].append(taken.seconds)
    found: list[EncodingTime] = []
    for name, each in times.items():
        item_s = float(np.median(each)) / batch
        found.append(EncodingTime(name, items, batch, 1000 * item_s, 1 / item_s, differences[name]))
    return found


def _difference(found: Encoding, expected: Encoding) -> float:
    mask = expected.mask
    pairs = (
        (found.embedding, expected.embedding),
        (found.tokens[mask], expected.tokens[mask]),
    )
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def _exported(stack: ExitStack, texts: str) -> Path:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "checkpoint"
    model = real_size_model([_QUERY], SIZES[texts], photo_px=384)
    save_checkpoint(folder, model)
    export_graphs(folder)
    return folder


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", help="an exported checkpoint")
    parser.add_argument("--texts", choices=list(SIZES), default="minilm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each way and batch")
    options = parser.parse_args(words)
    with ExitStack() as stack:
        checkpoint = options.checkpoint or _exported(stack, options.texts)
        stack.enter_context(one_thread())
        torch.set_num_threads(options.threads)
        found = measure(checkpoint, options.seconds)
    if options.json:
        print_json([each._asdict() for each in found])
        return
    rows = [
        (
            f"{each.way}, {each.items}, {each.batch} at a time",
            f"{each.ms:.2f}",
            f"{each.per_second:.1f}",
            f"{each.difference:.1e}",
        )
        for each in found
    ]
    print_rows(("way", "ms an item", "items a second", "difference"), rows)


if __name__ == "__main__":
    main()
