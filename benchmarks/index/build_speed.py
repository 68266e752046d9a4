"""Measures how fast an index is built, beside the engines alone on inputs that are ready.

    python -m benchmarks.index.build_speed CHECKPOINT PHOTOS [--photos 300] [--texts 1000]
        [--seconds 1] [--rounds 3] [--cores 1 all] [--json]

CHECKPOINT has been exported by `aladin export onnx`. PHOTOS is a data set or a folder that
`aladin index build --images` reads; without captions in it, no texts are encoded. Everything is
measured in one run, in turn, in a process for each number of cores, which it is confined to. A rate
is the median of its rounds; a time is the smaller of wall-clock and processor time on one core, and
wall-clock time on several, where other load counts.

engines   items a second of ONNX Runtime and of torch, called as a build calls them, on photos that
          are decoded and normalised, and on tokenised texts, equally long ones together
build     items a second of a whole build by ONNX Runtime, its start (of loading the network, in
          seconds) excluded
ratio     build over the fastest of the engines
steps_ms  processor time of one thread for a photo: reading, decoding, resizing, normalising,
          encoding, rounding and writing; only measured on one core
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from aladin_index.building.builder import build_index
from aladin_index.building.shards import ShardFormat, write_shard
from aladin_index.encode.item_encoders import (
    StreamedItems,
    item_encoder,
)
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.graphs.loading import load_for_inference, load_graphs
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.inference import Network, encode_images, tokenize
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.memory import DecodingMemory
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Target
from aladin_service.item_sources import images_of_all, texts_of_all
from benchmarks.lib.measuring import quiet_time
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.processes import in_fresh_process

T = TypeVar("T")

# Items whose build tells how long one takes to start, and photos that engines encode in turn.
_FEW = 2
_READY_PHOTOS = 16
_READY_TEXTS = 256


class Options(NamedTuple):
    """What to measure."""

    checkpoint: Path
    source: Path
    photos: int
    texts: int
    seconds: float
    rounds: int


class Speed(NamedTuple):
    """Figures of photos or texts; see the docstring of the module."""

    items: Target
    engines: dict[str, float]
    build: float
    start_s: float
    ratio: float


class Report(NamedTuple):
    """Figures on some cores; see the docstring of the module."""

    cores: int
    speeds: list[Speed]
    steps_ms: dict[str, float] | None


def measure(options: Options, cores: int) -> Report:
    """Measure in this process, confined to a number of cores for good.

    Args:
        options: What to measure.
        cores: Number of cores.
    """
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    set_compute_threads(cores)
    images = _first(images_of_all([options.source], None, None), ImageItem, options.photos)
    has_texts = options.source.is_file()
    lines = texts_of_all([options.source], None, ()) if has_texts else ()
    texts = _first(lines, TextItem, options.texts)
    networks: dict[str, Network] = {
        "onnxruntime": load_graphs(options.checkpoint).model,
        "torch": load_checkpoint(options.checkpoint).model,
    }
    kinds = [_Kind("images", networks, images, options)]
    if texts:
        kinds.append(_Kind("texts", networks, texts, options))
    for _ in range(options.rounds):
        for kind in kinds:
            kind.measure()
    by_default = load_for_inference(options.checkpoint).model
    steps_ms = _steps_ms(by_default, images) if cores == 1 else None
    return Report(cores, [kind.speed() for kind in kinds], steps_ms)


@dataclass(frozen=True)
class _Kind:
    """Photos or texts, whose engines and builds are measured round by round."""

    items: Target
    networks: Mapping[str, Network]
    sources: Sequence[Any]
    options: Options
    found: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def measure(self) -> None:
        """Measure each engine, and a build."""
        calls_of = _photo_calls if self.items == "images" else _text_calls
        for name, network in self.networks.items():
            calls, callers = calls_of(network, self.sources), network.throughput().callers
            self.found.setdefault(name, []).append(_rate(calls, callers, self.options.seconds))
        sources = (self.sources, None) if self.items == "images" else (None, self.sources)
        figures = _build(self.options.checkpoint, *sources)
        for name, figure in zip(("start", "build"), figures, strict=True):
            self.found.setdefault(name, []).append(figure)

    def speed(self) -> Speed:
        """Return the medians of the rounds."""
        medians = {name: float(np.median(each)) for name, each in self.found.items()}
        start_s, build = medians.pop("start"), medians.pop("build")
        fastest = max(medians.values())
        return Speed(self.items, medians, build, start_s, build / fastest)


def _first(items: Iterable[object], kind: type[T], count: int) -> list[T]:
    return list(islice((item for item in items if isinstance(item, kind)), count))


class Calls(NamedTuple):
    """Calls of an engine, to be made again and again; each encodes some items."""

    runs: Sequence[Callable[[], object]]
    items: int


def _photo_calls(model: Network, images: Sequence[ImageItem]) -> Calls:
    network, _, photos_a_call, _ = model.throughput()
    encoder = item_encoder("images", model, EncodeSettings())
    ready = [encoder.decode(item, encoder.read(item)).value for item in images[:_READY_PHOTOS]]
    groups = [ready[at : at + photos_a_call] for at in range(0, len(ready), photos_a_call)]
    runs = [partial(encode_images, network, group) for group in groups]
    return Calls(runs, len(ready))


def _text_calls(model: Network, texts: Sequence[TextItem]) -> Calls:
    """Batches of up to 32 texts of the same length: nothing is padded."""
    network = model.throughput().network
    by_length: dict[int, list[str]] = {}
    for item in texts[:_READY_TEXTS]:
        by_length.setdefault(int(tokenize(model, [item.text]).mask.sum()), []).append(item.text)
    groups = [each[at : at + 32] for each in by_length.values() for at in range(0, len(each), 32)]
    batches = [tokenize(model, group) for group in groups]
    runs = [partial(network.infer_texts, batch) for batch in batches]
    return Calls(runs, sum(map(len, groups)))


def _rate(calls: Calls, callers: int, seconds: float) -> float:
    """Return items a second if some threads make the calls."""
    call = methodcaller("__call__")
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(call, calls.runs))
        items, until_s = 0, time.perf_counter() + seconds
        with quiet_time() as taken:
            while items == 0 or time.perf_counter() < until_s:
                list(pool.map(call, calls.runs))
                items += calls.items
    return items / taken.seconds


def _build(
    checkpoint: Path,
    images: Sequence[ImageItem] | None,
    texts: Sequence[TextItem] | None,
) -> tuple[float, float]:
    """Return the seconds in which a build starts, and its items a second."""
    count = len(images or texts or ())
    settings = BuildSettings(readers=os.cpu_count() or 1)
    seconds: list[float] = []
    for some in (_FEW, count):
        with tempfile.TemporaryDirectory() as folder, quiet_time() as taken:
            first = images and images[:some], texts and texts[:some]
            build_index(checkpoint, Path(folder) / "index", *first, settings)
        seconds.append(taken.seconds)
    return seconds[0], (count - _FEW) / (seconds[1] - seconds[0])


def _steps_ms(model: Network, images: Sequence[ImageItem]) -> dict[str, float]:
    """Return the time of each step of a build for a photo, all on this thread."""
    encoder = item_encoder("images", model, EncodeSettings())
    reader, form = model.image.encoder, ShardFormat.of(model)
    memory = DecodingMemory()
    spent: dict[str, float] = dict.fromkeys(_STEPS, 0.0)

    def timed(step: str, sign: int = 1) -> _Timed:
        return _Timed(spent, step, sign)

    batches: list[StreamedItems] = []
    for item in images:
        with timed("read"):
            data = item.photo.read(DEFAULT_LIMITS.max_bytes)
        decoding = timed("decode")
        with decoding, decoded_image(data, memory) as photo:
            decoding.stop()
            with timed("resize"):
                value = reader.preprocess(photo.picture)
            height, width = np.shape(value)[1:]  # of photos, as graphs are exported for
            small = photo.picture.resize((width, height))
            # The same again without resizing: of it and of the resizing, only one part is this.
            with timed("resize", -1), timed("normalise"):
                reader.preprocess(small)
        prepared = encoder.decode(item, data)
        with timed("encode"):
            encoding = encoder.encode([prepared])
        batches.append(StreamedItems([item], [prepared._replace(value=None)], encoding))
    with tempfile.TemporaryDirectory() as folder, timed("round and write"):
        joined = list(_joined(batches))
        write_shard(Path(folder) / "shard", form, range(len(images)), joined, StageSeconds())
    return {step: 1000 * seconds / len(images) for step, seconds in spent.items()}


_STEPS = ("read", "decode", "resize", "normalise", "encode", "round and write")


class _Timed:
    """Adds the processor time of a block on this thread to a step, or subtracts it."""

    def __init__(self, spent: dict[str, float], step: str, sign: int) -> None:
        self._spent, self._step, self._sign = spent, step, sign
        self._started: float | None = None

    def __enter__(self) -> None:
        self._started = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the time before the block ends."""
        if self._started is not None:
            self._spent[self._step] += self._sign * (time.thread_time() - self._started)
        self._started = None


def _joined(batches: Sequence[StreamedItems]) -> Iterator[StreamedItems]:
    """Yield batches of as many items as a build writes at a time."""
    size = BuildSettings().batch_size
    for start in range(0, len(batches), size):
        some = batches[start : start + size]
        sources = [item for batch in some for item in batch.sources]
        found = [each for batch in some for each in batch.found]
        parts = [batch.encoding for batch in some if batch.encoding is not None]
        yield StreamedItems(sources, found, Encoding.concatenate(parts))


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print tables or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("checkpoint", type=Path, help="an exported checkpoint")
    parser.add_argument("source", type=Path, help="photos, with captions or without")
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", nargs="+", default=["1", "all"], help="numbers, or all")
    given = vars(parser.parse_args(words))
    as_json, cores = given.pop("json"), given.pop("cores")
    options = Options(**given)
    every = len(os.sched_getaffinity(0))
    counts = sorted({every if each == "all" else int(each) for each in cores})
    reports = [in_fresh_process(measure, options, count) for count in counts]
    if as_json:
        print_json([_plain(report) for report in reports])
        return
    for report in reports:
        _print(report)


def _plain(value: object) -> object:
    """Return a value with dictionaries in place of named tuples."""
    if isinstance(value, tuple):
        fields: dict[str, object] = cast(Any, value)._asdict()
        return {name: _plain(each) for name, each in fields.items()}
    if isinstance(value, list):
        return [_plain(each) for each in cast(list[object], value)]
    return value


def _print(report: Report) -> None:
    print(f"\n{report.cores} {'core' if report.cores == 1 else 'cores'}\n")
    engines = list(dict.fromkeys(name for speed in report.speeds for name in speed.engines))
    columns = ("items a second", *engines, "build", "build / fastest", "start, s")
    rows = [
        (
            speed.items,
            *(f"{speed.engines[name]:.1f}" for name in engines),
            f"{speed.build:.1f}",
            f"{speed.ratio:.2f}",
            f"{speed.start_s:.1f}",
        )
        for speed in report.speeds
    ]
    print_rows(columns, rows)
    if report.steps_ms is not None:
        print()
        print_rows(("step", "ms a photo"), [(k, f"{v:.2f}") for k, v in report.steps_ms.items()])


if __name__ == "__main__":
    main()
