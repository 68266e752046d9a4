"""Measures the bridge of an upgrade: the new model's queries against the old model's encodings.

    python -m benchmarks.index.upgrade_bridge OLD NEW DATA.jsonl [--split val] [--sample 2048]
        [--queries 1000] [--json]

OLD and NEW are indexes, in files, of the same photos by two models. The bridge is fitted as an
upgrade of OLD to the model of NEW fits it, on a random sample of the photos outside the split.
Captions of the split's photos are then searched among all photos, by both stages.

new         R@10 of the new model on its own encodings: what the upgrade ends with
bridge      R@10 of its queries over the bridge, on the old encodings; `bridge_relative`, divided
            by `new`
old         R@10 of the old model
chosen      how an upgrade asks the photos that it has not encoded yet, by the recalls that it
            measures on the sample itself: `sample_new`, `sample_bridge`, `sample_old`
overlap     share of the new model's first ten hits that are among the bridge's first ten, and
            among the old model's (`overlap_old`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.upgrade.measuring import MethodChooser
from aladin_index.upgrade.opening import upgrading_side
from aladin_index.upgrade.sample import PairedItems, live_vectors
from aladin_network.inference import encode_texts
from aladin_training.data import read_records
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures

_AT = 10


def draw_sample(old: SearchIndex, new: SearchIndex, count: int, excluded: set[str]) -> PairedItems:
    """Draw photos that both indexes have.

    Args:
        old: Index of the old model.
        new: Index of the new model.
        count: Number of photos.
        excluded: Ids of photos that are not to be among them.
    """
    rows_of_old, rows_of_new = (dict(index.side("images").items.ids()) for index in (old, new))
    both = sorted(rows_of_old.keys() & rows_of_new.keys() - excluded)
    drawn = np.random.default_rng(0).choice(len(both), min(count, len(both)), replace=False)
    ids = [both[place] for place in np.sort(drawn).tolist()]
    of_old, of_new = (
        np.array([rows[item_id] for item_id in ids], dtype=np.int64)
        for rows in (rows_of_old, rows_of_new)
    )
    return PairedItems(
        old.side("images").items.by_rows(of_old.tolist()),
        live_vectors(old.side("images"), of_old),
        live_vectors(new.side("images"), of_new),
    )


def measure(
    old: SearchIndex, new: SearchIndex, captions: Sequence[tuple[str, str]], sample: PairedItems
) -> dict[str, Any]:
    """Search with captions by both models and over the bridge.

    Args:
        old: Index of the old model.
        new: Index of the new model, with the same photos.
        captions: Captions, and the ids of their photos.
        sample: Photos that the bridge is fitted on, and that the upgrade chooses by.
    """
    texts = old.side("texts") if "texts" in old.manifest.targets else None
    fusion = old.manifest.fusion(old.checkpoint.fusion)
    models = old.checkpoint, fusion, new.checkpoint
    fitted = MethodChooser(*models, {"images": sample}, texts).fit("images")
    if fitted is None or fitted.bridge is None or fitted.rest.recalls is None:
        raise SystemExit("no bridge can be fitted between these models")
    bridge, recalls = fitted.bridge, fitted.rest.recalls
    of_old, of_new = TwoStageSearcher(old), TwoStageSearcher(new)
    side = upgrading_side(of_old, new.checkpoint, "images", fitted, sample)

    def by_new(text: str) -> EncodedQuery:
        return EncodedQuery(encode_texts(new.checkpoint.model, [text]), "text", text)

    def by_old(text: str) -> EncodedQuery:
        return EncodedQuery(encode_texts(old.checkpoint.model, [text]), "text", text)

    def over_bridge(text: str) -> EncodedQuery:
        query, token_dim = by_new(text), side.searcher.index.manifest.side("images")
        assert token_dim is not None
        return query._replace(encoding=bridge.query(query.encoding, token_dim.token_dim))

    ways: dict[str, tuple[TwoStageSearcher, Callable[[str], EncodedQuery]]] = {
        "new": (of_new, by_new),
        "bridge": (side.searcher, over_bridge),
        "old": (of_old, by_old),
    }
    found: dict[str, list[list[str]]] = {}
    for way, (searcher, encode) in ways.items():
        answers = [
            searcher.search(encode(text), "images", SearchOptions(k=_AT)) for text, _ in captions
        ]
        found[way] = [[hit.id for hit in answer.hits] for answer in answers]
    right = [photo for _, photo in captions]
    recall = {
        way: float(np.mean([photo in ids for photo, ids in zip(right, hits, strict=True)]))
        for way, hits in found.items()
    }
    shared = {
        way: [len({*own} & {*ids}) / _AT for own, ids in zip(found["new"], found[way], strict=True)]
        for way in ("bridge", "old")
    }
    return {
        "photos": new.side("images").count,
        "sample": len(sample),
        "queries": len(captions),
        "new": recall["new"],
        "bridge": recall["bridge"],
        "bridge_relative": recall["bridge"] / recall["new"],
        "old": recall["old"],
        "chosen": "bridge" if recalls.bridge > recalls.old else "old",
        "sample_new": recalls.new,
        "sample_bridge": recalls.bridge,
        "sample_old": recalls.old,
        "overlap": float(np.mean(shared["bridge"])),
        "overlap_old": float(np.mean(shared["old"])),
    }


def main() -> None:
    """Run the measurement, and print figures or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("old", type=Path, help="index of the old model")
    parser.add_argument("new", type=Path, help="index of the new model, with the same photos")
    parser.add_argument("data", type=Path, help="the photos with their captions")
    parser.add_argument("--split", default="val", help="photos whose captions are searched")
    parser.add_argument("--sample", type=int, default=2048, help="photos to fit the bridge on")
    parser.add_argument("--queries", type=int, default=1000, help="captions to search with")
    options = parser.parse_args()
    use_one_thread()
    records = read_records(options.data, options.split)
    every = [(caption, record.id) for record in records for caption in record.captions]
    drawn = np.random.default_rng(1).permutation(len(every))[: options.queries].tolist()
    captions = [every[place] for place in drawn]
    with closing(open_index(options.old)) as old, closing(open_index(options.new)) as new:
        sample = draw_sample(old, new, options.sample, {record.id for record in records})
        print_figures(measure(old, new, captions, sample), as_json=options.json)


if __name__ == "__main__":
    main()
