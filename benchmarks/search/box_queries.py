"""Measures queries by a box of a photo: the photo, the place and the thing that are found.

    python -m benchmarks.search.box_queries INDEX DATA.jsonl [--split val] [--queries 1000]
        [--seed 0] [--items 100000] [--json]

INDEX holds the photos of DATA and their captions. Of photos drawn at random, a box of 10 to 25 % of
the area is drawn. The photo's brightness, contrast and colour change by up to 10 %, and it is
compressed again (JPEG, quality 75). By way of asking, `r1` and `r5` are the shares of queries whose
photo is the first hit, or among the first five, and `iou50` and `iou` the share of boxes that were
found again with an intersection over union of at least .5 in the photo, and their mean:

crop      the crop is the query photo, searched as a whole: by its embedding alone
region    the crop is the query photo, with a box around all of it: regions against regions
first     the whole photo with the box: the first stage alone
box       the whole photo with the box: both stages
part      90 % of the photo's area, with a box whose edges are moved by up to 10 % of its sides
half      the same of half of its area; `part_asked` and `half_asked` are the overlaps of the boxes
          as they are asked with, what a search that moves nothing would have

things    Nouns that at least two captions of a photo name, each with a box around the region of the
          photo that fits it best: the share of the first ten hits that show the noun, by their
          captions, with the noun as a text, the whole photo, the crop, and the box by the first
          stage and by both; and of the captions among the first ten texts that name it, with the
          whole photo and with the box. The photo itself and its captions are not counted.
alike     For the photos as a whole, the mean share of nouns in common with the first ten hits, by
          the embeddings and by regions: what a second stage would be worth without a box
ms        the median time of a search by a stored caption and by a box of a stored photo, without
          encoding, at the index's size; with --items, at that many photos of 49 regions
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.open import open_backend
from aladin_index.search.backend import EncodedQuery, SearchBackend
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.photos.decoding import read_image
from aladin_network.types import Target
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import PhotoQuery
from aladin_service.search.lru_cache import EncodingCache
from aladin_service.settings import QueryLimits
from aladin_training.data import read_records
from benchmarks.lib.boxed_photos import Crop, as_box, draw_box, iou, make_crop
from benchmarks.lib.measuring import quiet_time, use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.box_things import (
    PAGE,
    WHOLE,
    Searches,
    compare_alike,
    draw_things,
    find_things,
    nouns_of,
)

_TIMED = 200
_CACHE_BYTES = 2**28


def find_crops(searches: Searches, crops: Sequence[Crop]) -> dict[str, float]:
    """Return the figures of all ways to ask for the crops."""
    ways: dict[str, Callable[[Crop], SearchAnswer]] = {
        "crop": lambda crop: searches.answer(PhotoQuery(crop.crop)),
        "region": lambda crop: searches.answer(PhotoQuery(crop.crop, box=WHOLE)),
        "first": lambda crop: searches.answer(PhotoQuery(crop.whole, box=crop.box), rerank=False),
        "box": lambda crop: searches.answer(PhotoQuery(crop.whole, box=crop.box)),
        "part": lambda crop: searches.answer(
            PhotoQuery(crop.parts[0].photo, box=crop.parts[0].box)
        ),
        "half": lambda crop: searches.answer(
            PhotoQuery(crop.parts[1].photo, box=crop.parts[1].box)
        ),
    }
    figures: dict[str, float] = {}
    for name, ask in ways.items():
        ranks: list[int] = []
        overlaps: list[float] = []
        for crop in crops:
            hits = ask(crop).hits
            own = next((hit for hit in hits if hit.id == crop.item_id), None)
            ranks.append(PAGE + 1 if own is None else own.rank)
            if own is not None:
                overlaps.append(iou(own.found, crop.box))
        figures |= {f"{name}_r{k}": float(np.mean(np.array(ranks) <= k)) for k in (1, 5)}
        if name != "crop":
            # A photo that was not found counts as a box that was not.
            figures[f"{name}_iou50"] = sum(each >= 0.5 for each in overlaps) / len(crops)
            figures[f"{name}_iou"] = sum(overlaps) / len(crops)
    for place, name in enumerate(("part", "half")):
        overlaps = [iou(crop.parts[place].box, crop.box) for crop in crops]
        figures[f"{name}_asked_iou50"] = float(np.mean(np.array(overlaps) >= 0.5))
        figures[f"{name}_asked_iou"] = float(np.mean(overlaps))
    return figures


def measure_times(index: SearchBackend, seed: int) -> dict[str, float]:
    """Return the median milliseconds of searches by stored texts and by boxes of stored photos.

    Args:
        index: Index of photos and texts.
        seed: Seed of the choice.
    """
    searcher, generator = TwoStageSearcher(index), np.random.default_rng(seed)

    def draw(target: Target) -> list[EncodedQuery]:
        side = index.side(target)
        rows = generator.integers(0, side.entry.count, _TIMED).tolist()
        return [searcher.stored_query(item.id) for item in side.items.by_rows(rows)]

    boxed = [each._replace(box=as_box(draw_box(generator))) for each in draw("images")]
    asked = {"text": draw("texts"), "box": boxed}
    times: dict[str, list[float]] = {name: [] for name in asked}
    for queries in asked.values():  # the first box fits the map of the embeddings
        searcher.search(queries[0], "images")
    for turn in range(_TIMED):
        for name, queries in asked.items():
            with quiet_time() as taken:
                searcher.search(queries[turn], "images")
            times[name].append(1000 * taken.seconds)
    return {f"{name}_ms": float(np.median(each)) for name, each in times.items()}


def measure_grown(source: Path, items: int, seed: int) -> dict[str, float]:
    """Return the times of an index of synthetic photos; see `measure_times`.

    Args:
        source: Index of real photos, which the synthetic ones are made from.
        items: Number of photos.
        seed: Seed of the choice.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "index"
        photos = SyntheticPhotos(find_source(source))
        write_synthetic_index(root, photos, items, BuildSettings())
        with closing(open_backend(root)) as index:
            times = measure_times(index, seed)
    return {f"{name}_{items}": value for name, value in times.items()}


def measure(
    index: Path, data: Path, split: str | None, queries: int, seed: int, items: int
) -> dict[str, Any]:
    """Return all figures.

    Args:
        index: Index of the photos and their captions.
        data: Their captions.
        split: Split of the data that is indexed, or None for all.
        queries: Number of crops and, at most, of nouns.
        seed: Seed of all draws.
        items: Photos of the index that times are measured with as well, or 0 for none.
    """
    generator = np.random.default_rng(seed)
    records = read_records(data, split)
    remembered = EncodingCache(_CACHE_BYTES)  # a crop is asked for in two ways
    with (
        closing(open_backend(index)) as opened,
        closing(QueryEncoder(QueryLimits(), remembered)) as encoder,
    ):
        searches = Searches(TwoStageSearcher(opened), encoder)
        chosen = generator.choice(len(records), queries, replace=queries > len(records))
        crops: list[Crop] = []
        for record in (records[place] for place in chosen.tolist()):
            photo, box = read_image(record.photo), draw_box(generator)
            crops.append(make_crop(record.id, photo, box, generator))
        figures: dict[str, Any] = {"photos": len(records), "crops": len(crops)}
        figures |= find_crops(searches, crops)
        named = {record.id: nouns_of(record.captions) for record in records}
        things = draw_things(searches, named, queries, seed)
        files = {record.id: record.photo for record in records}
        held = [
            make_crop("", read_image(files[each.photo]), np.array(each.box), generator).crop
            for each in things
        ]
        figures |= {"things": len(things)} | find_things(searches, things, named, held)
        figures |= compare_alike(searches, [record.id for record in records], named)
        figures |= measure_times(opened, seed)
    return figures | (measure_grown(index, items, seed) if items else {})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print them."""
    parser = figures_parser(__doc__)
    parser.add_argument("index", type=Path, help="index of the photos and their captions")
    parser.add_argument("data", type=Path, help="JSONL of the photos with captions")
    parser.add_argument("--split", help="split that is indexed; by default all")
    parser.add_argument("--queries", type=int, default=1000, help="crops to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws")
    parser.add_argument("--items", type=int, default=0, help="photos of a larger, synthetic index")
    asked = parser.parse_args(arguments)
    use_one_thread()
    figures = measure(asked.index, asked.data, asked.split, asked.queries, asked.seed, asked.items)
    print_figures(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
