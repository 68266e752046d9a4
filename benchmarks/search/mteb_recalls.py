"""Runs an index through MTEB: the retrieval tasks of a data set with captions, in both directions.

    python -m benchmarks.search.mteb_recalls INDEX DATA [--split test] [--json]

DATA is any data set that `aladin evaluate` reads, and INDEX has its photos and captions under the
same ids. The hit rates at 1, 5 and 10 are the recalls that `aladin evaluate DATA --index INDEX`
prints as `two_stage`. Needs the package mteb (2.26 or newer), and no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import mteb
from datasets import Dataset, Features, Image, Value
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.types import PromptType

import aladin_search
from aladin_network.types import DIRECTIONS, Direction
from aladin_training.data import Record, read_records
from benchmarks.lib.output import figures_parser, print_json, print_rows

HITS = 100
CUTOFFS = (1, 5, 10)


class IndexSearch:
    """An open index as a model of MTEB, by its `SearchProtocol`; the index has the documents."""

    def __init__(self, index: aladin_search.Index) -> None:
        self._index = index
        described = {"name": "aladin-search/index", "modalities": ["text", "image"]}
        self.mteb_model_meta = ModelMeta.create_empty(described)

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Do nothing: the documents are in the index."""

    def search(
        self, queries: Dataset, *, task_metadata: TaskMetadata, top_k: int, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the hits by query."""
        by_text = task_metadata.get_modalities(PromptType.query) == ["text"]
        asked = _texts(queries) if by_text else _photos(queries)
        found: dict[str, dict[str, float]] = {}
        for query_id, query in zip(cast(list[str], queries["id"]), asked, strict=True):
            target = "images" if by_text else "texts"
            hits = self._index.search(**query, target=target, k=min(top_k, HITS))
            found[query_id] = {hit.id: hit.score for hit in hits}
        return found


class CaptionedTask(AbsTaskRetrieval):
    """A task whose data are given with it."""

    def load_data(self, *_: Any, **__: Any) -> None:
        """Do nothing: the data are there."""


def _texts(rows: Dataset) -> Iterator[dict[str, Any]]:
    return ({"text": text} for text in cast(list[str], rows["text"]))


def _photos(rows: Dataset) -> Iterator[dict[str, Any]]:
    stored = rows.select_columns(["image"]).cast_column("image", Image(decode=False))
    return ({"image": cast(Any, row)["image"]["bytes"]} for row in stored)


def captioned_task(records: Sequence[Record], direction: Direction, split: str) -> CaptionedTask:
    """Make the task of one direction; photos without captions compete, and are no queries.

    Args:
        records: Photos with their captions.
        direction: Which of both are the queries.
        split: Name of the split.
    """
    by_text = direction == "text_to_image"
    asking = records if by_text else [record for record in records if record.captions]
    texts = Dataset.from_dict(
        {
            "id": [each for record in records for each in record.caption_ids],
            "text": [each for record in records for each in record.captions],
        }
    )
    photos = Dataset.from_dict(
        {
            "id": [record.id for record in asking],
            "image": [{"path": None, "bytes": record.photo.read()} for record in asking],
        },
        features=Features({"id": Value("string"), "image": Image()}),
    )
    relevant: dict[str, dict[str, int]] = {}
    for record in records:
        for text in record.caption_ids:
            query, document = (text, record.id) if by_text else (record.id, text)
            relevant.setdefault(query, {})[document] = 1
    metadata = TaskMetadata(
        name=f"Captioned{'T2I' if by_text else 'I2T'}Retrieval",
        description="Photos and their captions.",
        dataset={"path": "local/captioned", "revision": "local"},
        type="Any2AnyRetrieval",
        category="t2i" if by_text else "i2t",
        modalities=["text", "image"],
        eval_splits=[split],
        eval_langs=["eng-Latn"],
        main_score="hit_rate_at_1",
        is_public=False,
    )
    # MTEB reads the description as an attribute of the class.
    task = type(metadata.name, (CaptionedTask,), {"metadata": metadata})()
    corpus, queries = (photos, texts) if by_text else (texts, photos)
    parts = {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": None}
    task.dataset = {"default": {split: cast(Any, parts)}}
    task.data_loaded = True
    return task


def measure(index: Path, data: Path, split: str) -> dict[Direction, list[float]]:
    """Return the hit rates at `CUTOFFS` of each direction in percent."""
    records = read_records(data, split, require_captions=False)
    tasks = [captioned_task(records, direction, split) for direction in DIRECTIONS]
    with aladin_search.open(index) as opened:
        results = mteb.evaluate(IndexSearch(opened), tasks, cache=None, co2_tracker=False)
    rates: dict[Direction, list[float]] = {}
    for direction, each in zip(DIRECTIONS, results.task_results, strict=True):
        (scores,) = each.scores[split]
        rates[direction] = [round(100 * scores[f"hit_rate_at_{k}"], 2) for k in CUTOFFS]
    return rates


def main() -> None:
    """Run the command."""
    parser = figures_parser(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    asked = parser.parse_args()
    rates = measure(asked.index, asked.data, asked.split)
    if asked.json:
        print_json(rates)
    else:
        columns = ("direction", *(f"hit rate at {k}" for k in CUTOFFS))
        print_rows(columns, [(direction, *values) for direction, values in rates.items()])


if __name__ == "__main__":
    main()
