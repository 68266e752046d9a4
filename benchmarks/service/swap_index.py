"""The index whose generations `benchmarks.service.swap` publishes, and its correct answers.

Its encodings are random and its network is small and untrained: every generation has different hits
for the same query, and they are known.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aladin_index.encode.encoded import PackedBatch
from aladin_index.format.disk import disk_errors, only_builder, remove_folder
from aladin_index.format.layout import (
    ANN,
    EMBEDDINGS,
    ITEMS,
    NEW_GENERATION,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import ModelEntry, read_manifest, write_manifest
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import NewGeneration, publish_generation, write_generation
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.small_collection import (
    new_index,
    photo_fields,
    photo_row,
    random_png,
    small_model,
    unit_rows,
)

WORDS = "two small dogs run on the green grass a man rides red motorcycle in street"
HITS = 5
_QUERIES = 40
_PHOTOS, _TOKENS = 300, 4
_EMBEDDING_DIM, _TOKEN_DIM = 32, 16
_CODEC = TokenCodec("float16", _TOKEN_DIM)
# Files in which a broken generation contains zeros, and the length of the part that is checked on
# opening and remains intact.
_DAMAGED, _HEADER = (EMBEDDINGS, ANN, ITEMS), 128
# Scores of a text that is encoded together with others differ in the last digits of float32.
_TOLERANCE = 1e-4


def some_texts() -> list[str]:
    """Make queries, the same at every call."""
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS.split(), 4)) for _ in range(_QUERIES)]


class _Hit(NamedTuple):
    id: str
    score: float


class SwapIndex:
    """An index on disk whose live generation is replaced in every possible way."""

    def __init__(self, root: Path, queries: Sequence[str]) -> None:
        """Build the first generation.

        Args:
            root: Folder of the new index.
            queries: Texts whose correct answers are recorded.
        """
        self.root = root
        self._queries = queries
        self._random = np.random.default_rng(0)
        # For each generation, the correct answers of each query, in each state of the generation.
        self._truths: dict[int, list[list[list[_Hit]]]] = {}
        self._builds = self._adds = 0
        with new_index(root, small_model(_EMBEDDING_DIM, _TOKEN_DIM, WORDS)) as model:
            self._write(model)
        self.learn()

    @property
    def generation(self) -> int:
        """Number of the live generation."""
        return live_generation(self.root)

    def rebuild(self) -> None:
        """Publish a generation with other items."""
        model = read_manifest(generation_folder(self.root, self.generation)).model
        with disk_errors(self.root), only_builder(self.root):
            self._write(model)

    def tune(self) -> None:
        """Publish the same items with another number of candidates."""
        at = int(self._random.integers(1, 10))
        tune_index(self.root, TuneOptions(at=at, num_queries=20, max_candidates=200))

    def add_and_compact(self, service: ServiceProcess) -> None:
        """Add a photo through the service, then compact the changes into a new generation."""
        self._adds += 1
        item = photo_fields(f"added-{self._adds}", random_png(self._random, 32))
        status, answer = service.ask("POST", "/v1/items/images", item)
        if status != 201:
            raise SystemExit(f"expected status 201 for an addition, got {status}: {answer!r}")
        self.learn()
        compact_index(self.root, keep=2)

    def roll_back(self) -> None:
        """Make the previous generation live again, or the newest if there is no previous one."""
        live = self.generation
        earlier = [number for number in published_generations(self.root) if number < live]
        rollback_index(self.root, None if earlier else max(published_generations(self.root)))

    def publish_broken(self) -> int:
        """Publish a copy with files of the right lengths, one of which is mostly zeros.

        Returns:
            The generation that was live, and is to be made live again.
        """
        live = self.generation
        with disk_errors(self.root), only_builder(self.root):
            number = max(published_generations(self.root)) + 1
            folder = self.root / NEW_GENERATION
            shutil.copytree(generation_folder(self.root, live), folder)
            damaged = folder / "images" / _DAMAGED[number % len(_DAMAGED)]
            content = damaged.read_bytes()
            damaged.write_bytes(content[:_HEADER] + bytes(len(content) - _HEADER))
            manifest = read_manifest(folder)
            write_manifest(folder, replace(manifest, generation=number))
            publish_generation(self.root, folder, number)
        return live

    def repair(self, generation: int) -> None:
        """Make an earlier generation live again, and remove the broken one."""
        broken = self.generation
        rollback_index(self.root, generation)
        with only_builder(self.root):
            remove_folder(self.root, generation_folder(self.root, broken))

    def learn(self) -> None:
        """Record the correct answers of the live generation in its current state."""
        with open_index(self.root) as index:
            searcher, encoder = TwoStageSearcher(index), QueryEncoder(QueryLimits())
            options = SearchOptions(k=HITS)
            with closing(encoder):
                queries = [encoder.encode_one(searcher, TextQuery(text)) for text in self._queries]
            answers = [searcher.search(query, "images", options).hits for query in queries]
            truth = [[_Hit(hit.id, hit.score) for hit in hits] for hits in answers]
            self._truths.setdefault(index.generation, []).append(truth)

    def is_correct(self, query: int, answer: dict[str, Any]) -> bool:
        """Return whether an answer has the hits of the generation that it names.

        Args:
            query: Position among the queries.
            answer: Answer of the service.
        """
        hits = [_Hit(hit["id"], hit["score"]) for hit in answer["hits"]]
        truths = self._truths.get(answer["generation"], [])
        return any(_agree(hits, truth[query]) for truth in truths)

    def _write(self, model: ModelEntry) -> None:
        self._builds += 1
        collection = CollectionSource(
            embedding_dim=_EMBEDDING_DIM, codec=_CODEC, parts=self._parts()
        )
        settings = BuildSettings(default_candidates=50)
        write_generation(
            self.root,
            NewGeneration(
                collections={"images": collection},
                model=model,
                settings=settings,
                fingerprint=f"swap {self._builds}",
            ),
        )

    def _parts(self) -> Iterator[PackedBatch]:
        names = [f"photo-{self._builds}-{number}" for number in range(_PHOTOS)]
        items = [photo_row(row, name, {"build": self._builds}) for row, name in enumerate(names)]
        embeddings = unit_rows(self._random.standard_normal((_PHOTOS, _EMBEDDING_DIM)))
        tokens = unit_rows(self._random.standard_normal((_PHOTOS * _TOKENS, _TOKEN_DIM)))
        lengths = np.full(_PHOTOS, _TOKENS, dtype=np.int64)
        yield PackedBatch(items, embeddings, _CODEC.pack(tokens), lengths)


def _agree(hits: list[_Hit], truth: list[_Hit]) -> bool:
    """Return whether hits match in content and order; those of equal score may be swapped."""
    if len(hits) != len(truth):
        return False
    right = dict(truth)
    return all(
        abs(hit.score - expected.score) < _TOLERANCE
        and abs(right.get(hit.id, expected.score) - hit.score) < _TOLERANCE
        and (hit.id in right or abs(hit.score - truth[-1].score) < _TOLERANCE)
        for hit, expected in zip(hits, truth, strict=True)
    )
