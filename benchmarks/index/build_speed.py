"""Measures how fast an index is built, beside the engines alone on inputs that are ready.

    python -m benchmarks.index.build_speed CHECKPOINT PHOTOS [--photos 300] [--texts 1000]
        [--seconds 1] [--rounds 3] [--cores 1 all] [--json]

CHECKPOINT has been exported by `aladin export onnx`. PHOTOS is a data set or a folder that
`aladin index build --images` reads; without captions in it, no texts are encoded. Everything is
measured in one run, in turn, in a process for each number of cores, which it is confined to. A rate
is the median of its rounds; a time is the smaller of wall-clock and processor time on one core, and
wall-clock time on several, where other load counts.

engines   items a second of each installed package for graphs and of torch, called as a build calls
          them, on photos that are decoded and normalised, and on tokenised texts, equally long ones
          together
build     items a second of a whole build by the default runtime, its start (of loading the network,
          in seconds) excluded
ratio     build over the fastest of the engines
steps_ms  processor time of one thread for a photo: reading, decoding, resizing, normalising,
          encoding, rounding and writing; only measured on one core
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from aladin_index.build.builder import build_index
from aladin_index.build.shards import ShardFormat, write_shard
from aladin_index.encode.item_encoders import PhotoEncoder, item_encoder
from aladin_index.encode.read_ahead import EncodedItems, StageSeconds
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.graphs.loading import load_graphs
from aladin_network.graphs.network import for_throughput
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.inference import Network, encode_images, tokenize
from aladin_network.photos.decoding import DEFAULT_LIMITS, decoded_image
from aladin_network.photos.memory import DecodingMemory
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import RUNTIMES, GraphRuntime
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
    """What to measure; see the docstring of the module."""

    checkpoint: Path
    source: Path
    photos: int
    texts: int
    seconds: float
    rounds: int


class Speed(NamedTuple):
    """Figures of one kind of items; see the docstring of the module."""

    engines: dict[str, float]
    build: float
    start_s: float
    ratio: float


class Report(NamedTuple):
    """Figures on some cores; see the docstring of the module."""

    cores: int
    photos: Speed
    texts: Speed | None
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
        name: load_graphs(options.checkpoint, name).model for name in _installed()
    }
    networks["torch"] = load_checkpoint(options.checkpoint).model
    on_photos = {name: _photo_calls(each, images) for name, each in networks.items()}
    on_texts = {name: _text_calls(each, texts) for name, each in networks.items() if texts}
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for kind, engines in (("photos", on_photos), ("texts", on_texts)):
            for name, calls in engines.items():
                rate = _rate(calls, for_throughput(networks[name]).callers, options.seconds)
                found.setdefault(f"{kind} {name}", []).append(rate)
        _build(options.checkpoint, images, None, found)
        if texts:
            _build(options.checkpoint, None, texts, found)
    return Report(
        cores,
        _speed("photos", on_photos, found),
        _speed("texts", on_texts, found) if texts else None,
        _steps_ms(networks[_installed()[0]], images) if cores == 1 else None,
    )


def _installed() -> list[GraphRuntime]:
    return [name for name in RUNTIMES if find_spec(name) is not None]


def _first(items: Iterable[object], kind: type[T], count: int) -> list[T]:
    return list(islice((item for item in items if isinstance(item, kind)), count))


class Calls(NamedTuple):
    """Calls of an engine, to be made again and again; each encodes some items."""

    runs: Sequence[Callable[[], object]]
    items: int


def _photo_calls(model: Network, images: Sequence[ImageItem]) -> Calls:
    network, _, photos_a_call = for_throughput(model)
    encoder = item_encoder("images", model, DEFAULT_LIMITS)
    ready = [encoder.decode(0, item, encoder.read(item)).data for item in images[:_READY_PHOTOS]]
    groups = [ready[at : at + photos_a_call] for at in range(0, len(ready), photos_a_call)]
    runs = [partial(encode_images, network, group) for group in groups]
    return Calls(runs, len(ready))


def _text_calls(model: Network, texts: Sequence[TextItem]) -> Calls:
    """Batches of up to 32 texts of the same length: nothing is padded."""
    network = for_throughput(model).network
    by_length: dict[int, list[str]] = {}
    for item in texts[:_READY_TEXTS]:
        by_length.setdefault(int(tokenize(model, [item.text]).mask.sum()), []).append(item.text)
    groups = [each[at : at + 32] for each in by_length.values() for at in range(0, len(each), 32)]
    batches = [tokenize(model, group) for group in groups]
    runs = [partial(network.infer_texts, batch) for batch in batches]
    return Calls(runs, sum(map(len, groups)))


def _rate(calls: Calls, callers: int, seconds: float) -> float:
    """Return items a second if some threads make the calls."""

    def call(run: Callable[[], object]) -> None:
        run()

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
    found: dict[str, list[float]],
) -> None:
    """Add the rate and the start of one build to what was found."""
    kind, count = ("photos", len(images)) if images is not None else ("texts", len(texts or ()))
    seconds: list[float] = []
    for some in (_FEW, count):
        with tempfile.TemporaryDirectory() as folder, quiet_time() as taken:
            build_index(
                checkpoint,
                Path(folder) / "index",
                None if images is None else images[:some],
                None if texts is None else texts[:some],
                BuildSettings(readers=os.cpu_count() or 1),
            )
        seconds.append(taken.seconds)
    found.setdefault(f"{kind} start", []).append(seconds[0])
    found.setdefault(f"{kind} build", []).append((count - _FEW) / (seconds[1] - seconds[0]))


def _speed(kind: str, engines: Iterable[str], found: dict[str, list[float]]) -> Speed:
    medians = {name: float(np.median(found[f"{kind} {name}"])) for name in (*engines,)}
    build = float(np.median(found[f"{kind} build"]))
    start_s = float(np.median(found[f"{kind} start"]))
    return Speed(medians, build, start_s, build / max(medians.values()))


def _steps_ms(model: Network, images: Sequence[ImageItem]) -> dict[str, float]:
    """Return the time of each step of a build for a photo, all on this thread."""
    encoder = item_encoder("images", model, DEFAULT_LIMITS)
    assert isinstance(encoder, PhotoEncoder)
    reader, form = model.image.encoder, ShardFormat.of(model)
    memory = DecodingMemory()
    spent: dict[str, float] = dict.fromkeys(_STEPS, 0.0)

    def timed(step: str, sign: int = 1) -> _Timed:
        return _Timed(spent, step, sign)

    batches: list[EncodedItems] = []
    for row, item in enumerate(images):
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
        prepared = encoder.decode(row, item, data)
        with timed("encode"):
            encoding = encoder.encode([prepared])
        batches.append(EncodedItems([prepared._replace(data=None)], encoding))
    with tempfile.TemporaryDirectory() as folder, timed("round and write"):
        joined = list(_joined(batches))
        write_shard(Path(folder) / "shard", form, joined, StageSeconds())
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


def _joined(batches: Sequence[EncodedItems]) -> Iterator[EncodedItems]:
    """Yield batches of as many items as a build writes at a time."""
    size = BuildSettings().batch_size
    for start in range(0, len(batches), size):
        some = batches[start : start + size]
        items = [item for batch in some for item in batch.items]
        parts = [batch.encoding for batch in some if batch.encoding is not None]
        yield EncodedItems(items, Encoding.concatenate(parts))


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print tables or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("checkpoint", type=Path, help="an exported checkpoint")
    parser.add_argument("source", type=Path, help="photos, with captions or without")
    parser.add_argument("--photos", type=int, default=300, help="most photos to encode")
    parser.add_argument("--texts", type=int, default=1000, help="most texts to encode")
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
    if not isinstance(value, tuple):
        return value
    fields: dict[str, Any] = cast(Any, value)._asdict()
    return {name: _plain(each) for name, each in fields.items()}


def _print(report: Report) -> None:
    print(f"\n{report.cores} {'core' if report.cores == 1 else 'cores'}\n")
    kinds = {"photos": report.photos} | ({"texts": report.texts} if report.texts else {})
    engines = list(report.photos.engines)
    columns = ("items a second", *engines, "build", "build / fastest", "start, s")
    rows = [
        (
            kind,
            *(f"{speed.engines[name]:.1f}" for name in engines),
            f"{speed.build:.1f}",
            f"{speed.ratio:.2f}",
            f"{speed.start_s:.1f}",
        )
        for kind, speed in kinds.items()
    ]
    print_rows(columns, rows)
    if report.steps_ms is not None:
        print()
        print_rows(("step", "ms a photo"), [(k, f"{v:.2f}") for k, v in report.steps_ms.items()])


if __name__ == "__main__":
    main()
