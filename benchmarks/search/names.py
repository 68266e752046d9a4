"""Measures searches by the names of files, and what the words of items cost and change.

    python -m benchmarks.search.names [--photos 5000] [--json] [--quick]
    python -m benchmarks.search.names --captions DATA.jsonl --model CHECKPOINT [--split test]

The first form writes an index of `--photos` photos with random encodings, whose files have the
usual kinds of names, in folders, and asks for 100 of them:

whole      share of whole names, half of them without the suffix, that are the first hit
parts      share of parts of at least five letters and digits that are of at most ten names in
           the first ten hits
every_part the same of parts of any number of names
ratio      processor time of searches by captions and by names with words, asked in turn with
           searches without, in parts of theirs
first_s    seconds of the first search, which reads the items

The second form gives photos with captions such names and folders, and searches them by their
captions: R@1 + R@5 + R@10 by the weight of words, `default` that of a library; without keywords,
with two words of each photo's own captions as its keywords, and with two of other photos'.
"""

from __future__ import annotations

import random
import string
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from aladin_index.building.builder import build_index
from aladin_index.encode.encoded import PackedBatch
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.skipped import write_follow_record
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import NewGeneration, write_generation
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import WordIndex, plain_words
from aladin_index.open import open_backend
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens.store import codec_for
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from aladin_training.data import Record, iter_records
from aladin_training.data.records import ignore_skipped
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.small_collection import new_index, photo_row, small_model

_ASKED, _PAGE, _LEAST, _QUICK = 100, 10, 5, 300
_TOKENS, _DIM = 9, 64
_WEIGHTS = (0.0, None, 0.1, 0.3)
_PLACES = ["Bern", "Zürich", "Lago Maggiore", "Zanzibar", "Paris", "北京", "Kyoto"]
_THINGS = ["beach", "birthday", "wedding", "hike", "dog", "garden", "snow", "market", "castle"]
_NAMES = [
    "IMG_{n:04d}.JPG",
    "DSC{n:05d}.JPG",
    "IMG_{day}_{many:09d}.jpg",
    "PXL_{day}_{many:09d}.MP.jpg",
    "IMG-{day}-WA{few:04d}.jpg",
    "Screenshot {day} at {few}.png",
    "{hex}_{n}.jpg",
    "{thing} {place} {n}.jpg",
    "照片{n}.jpg",
]
_TEXT = "a dog runs on the beach with a red ball and two people walk in the snow"


def usual_names(count: int, chance: random.Random) -> Iterator[str]:
    """Yield relative paths of photos as cameras, telephones, programs and people name them."""
    for number in range(count):
        year, month = chance.randrange(2008, 2025), chance.randrange(1, 13)
        name = _NAMES[number % len(_NAMES)].format(
            n=number,
            day=f"{year}{month:02d}{chance.randrange(1, 29):02d}",
            many=chance.randrange(10**9),
            few=chance.randrange(10**4),
            hex="".join(chance.choices(string.hexdigits.lower(), k=10)),
            thing=chance.choice(_THINGS),
            place=chance.choice(_PLACES),
        )
        folder = chance.choice([f"{year}", f"{year}/{chance.choice(_PLACES)}", "Camera"])
        yield f"{folder}/{name}"


def write_index(root: Path, names: Sequence[str]) -> None:
    """Write an index of photos with random encodings that follows folders."""
    drawn = np.random.default_rng(0)

    def unit(*shape: int) -> Any:
        values = drawn.standard_normal(shape).astype(np.float32)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    settings = BuildSettings()
    codec = codec_for(settings.token_dtype, [unit(1000, _DIM)])
    batches = range(0, len(names), 1000)

    def parts() -> Iterator[PackedBatch]:
        for start in batches:
            some = names[start : start + 1000]
            items = [
                photo_row(start + n, name, {"folder": [*PurePosixPath(name).parts[:-1]]})
                for n, name in enumerate(some)
            ]
            tokens = codec.pack(unit(len(some) * _TOKENS, _DIM))
            lengths = np.full(len(some), _TOKENS, dtype=np.int64)
            yield PackedBatch(items, unit(len(some), _DIM), tokens, lengths)

    source = CollectionSource(embedding_dim=_DIM, codec=codec, parts=parts())
    with new_index(root, small_model(_DIM, _DIM, _TEXT)) as model:
        write_generation(
            root,
            NewGeneration(
                collections={"images": source}, model=model, settings=settings, fingerprint="names"
            ),
        )
    write_follow_record(root, (), {})


def part_of(name: str, chance: random.Random) -> str | None:
    """Draw a part of at least five letters and digits of a file's name, as it is written there."""
    stem = PurePosixPath(name).stem
    start = chance.randrange(len(stem))
    for end in range(start + _LEAST, len(stem) + 1):
        if sum(map(len, plain_words(stem[start:end]))) >= _LEAST:
            return stem[start : chance.randrange(end, len(stem) + 1)]
    return None


class Asker:
    """Asks an open index for texts."""

    def __init__(self, searcher: TwoStageSearcher) -> None:
        self.searcher = searcher
        self._encoder = QueryEncoder(QueryLimits())

    def ask(self, text: str, lexical: float | None = None, *, stack: bool = False) -> SearchAnswer:
        query = self._encoder.encode_one(self.searcher, TextQuery(text))
        options = SearchOptions(k=_PAGE, lexical=lexical, stack=stack)
        return self.searcher.search(query, "images", options)

    def has(self, text: str, wanted: str, first: int) -> bool:
        return wanted in [hit.id for hit in self.ask(text).hits[:first]]


def name_figures(root: Path, names: Sequence[str], chance: random.Random) -> dict[str, Any]:
    """Ask for whole names and parts, and time searches with words and without."""
    with closing(open_backend(root)) as index:
        asker = Asker(TwoStageSearcher(index))
        began = time.perf_counter()
        asker.ask(_TEXT)
        first_s = time.perf_counter() - began
        asked = chance.sample(list(names), min(_ASKED, len(names)))
        files = [PurePosixPath(each) for each in asked]
        whole = [
            asker.has(file.name if n % 2 else file.stem, name, 1)
            for n, (file, name) in enumerate(zip(files, asked, strict=True))
        ]
        stems = [" ".join(plain_words(PurePosixPath(each).name)) for each in names]
        rare: list[bool] = []
        every: list[bool] = []
        while len(rare) < len(asked):
            name = chance.choice(names)
            part = part_of(name, chance)
            if part is None:
                continue
            key = " ".join(plain_words(part))
            is_found = asker.has(part, name, _PAGE)
            if len(every) < len(asked):
                every.append(is_found)
            if sum(key in stem for stem in stems) <= _PAGE:
                rare.append(is_found)
        texts = [f"{_TEXT} {n}" for n in range(20)] + [file.stem for file in files[:20]]
        with_s, without_s = _times(asker, texts)
    return {
        "photos": len(names),
        "whole": sum(whole) / len(whole),
        "parts": sum(rare) / len(rare),
        "every_part": sum(every) / len(every),
        "with_ms": 1000 * with_s,
        "without_ms": 1000 * without_s,
        "ratio": with_s / without_s,
        "first_s": first_s,
    }


def _times(asker: Asker, texts: Sequence[str]) -> tuple[float, float]:
    """Return the median processor seconds of a search with words and of one without, in turn."""
    times: dict[float | None, list[float]] = {None: [], 0.0: []}
    for text in texts:
        asker.ask(text, lexical=0.0)
        for lexical, seconds in times.items():
            began = time.process_time()
            asker.ask(text, lexical=lexical)
            seconds.append(time.process_time() - began)
    return float(np.median(times[None])), float(np.median(times[0.0]))


def caption_figures(
    root: Path, checkpoint: Path, data: Path, split: str, chance: random.Random
) -> dict[str, Any]:
    """Search photos with usual names and keywords by their captions, by weight of the words."""
    records = list(iter_records(data, split, on_skip=ignore_skipped))
    names = usual_names(len(records), chance)
    items = [
        ImageItem(
            id=record.id,
            path=record.photo.path,
            uri=name,
            metadata={"folder": [*PurePosixPath(name).parts[:-1]]},
        )
        for record, name in zip(records, names, strict=True)
    ]
    build_index(checkpoint, root, items, None, BuildSettings())
    write_follow_record(root, (), {})
    right = {each.id: _keywords([each, each], chance) for each in records}
    wrong = {each.id: _keywords(chance.sample(records, 2), chance) for each in records}
    asked = [(caption, each.id) for each in records for caption in each.captions]
    figures: dict[str, Any] = {"photos": len(items), "captions": len(asked)}
    with closing(open_index(root)) as index:
        searcher = TwoStageSearcher(index)
        terms = [*_encoded(searcher, [caption for caption, _ in asked])]
        assert index.images is not None
        store = index.images.items
        for kind, keywords in {
            "names": {},
            "right keywords": right,
            "wrong keywords": wrong,
        }.items():
            store.words = WordIndex(partial(_with_keywords, store, keywords))
            for weight in _WEIGHTS:
                options = SearchOptions(k=_PAGE, lexical=weight)
                found = searcher.search_all([AskedSearch((t,), "images", options) for t in terms])
                each = zip(found, asked, strict=True)
                ranks = [_rank(answer, wanted) for answer, (_, wanted) in each]
                recalls = [np.mean([rank <= at for rank in ranks]) for at in (1, 5, 10)]
                named = "default" if weight is None else weight
                figures[f"{kind}, {named}"] = round(100 * float(np.sum(recalls)), 2)
    return figures


def _keywords(records: Sequence[Record], chance: random.Random) -> list[str]:
    return [chance.choice(plain_words(chance.choice(each.captions))) for each in records]


def _with_keywords(
    store: ItemStore, keywords: Mapping[str, list[str]], rows: Sequence[int]
) -> list[StoredItem]:
    return [
        item._replace(metadata={**item.metadata, "keywords": keywords.get(item.id, [])})
        for item in store.by_rows(rows)
    ]


def _encoded(searcher: TwoStageSearcher, texts: Sequence[str]) -> Iterator[Term]:
    model = searcher.index.checkpoint.model
    for start in range(0, len(texts), 64):
        some = texts[start : start + 64]
        encoding: Encoding = encode_texts(model, some, truncate=True)
        for place, text in enumerate(some):
            yield Term(encoding.item(place), "text", text)


def _rank(answer: SearchAnswer | Exception, wanted: str) -> float:
    if isinstance(answer, Exception):
        raise answer
    return next((hit.rank for hit in answer.hits if hit.id == wanted), float("inf"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print figures or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK} photos: shows that it runs")
    parser.add_argument("--photos", type=int, default=5000, metavar="N")
    parser.add_argument("--captions", type=Path, metavar="DATA.jsonl")
    parser.add_argument("--model", type=Path, metavar="CHECKPOINT", help="for --captions")
    parser.add_argument("--split", default="test", help="for --captions")
    options = parser.parse_args(arguments)
    if (options.captions is None) != (options.model is None):
        parser.error("--captions: expected --model with it")
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "index"
        if options.captions is not None:
            figures = caption_figures(root, options.model, options.captions, options.split, chance)
        else:
            names = [*usual_names(_QUICK if options.quick else options.photos, chance)]
            write_index(root, names)
            figures = name_figures(root, names, chance)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
