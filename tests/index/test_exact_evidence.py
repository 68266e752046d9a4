"""Evidence adds up to the alignment score, whatever the tokens' form and origin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.item_changer import add_items
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.evidence import score_pair, word_evidence
from aladin_index.search.query import Term
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import AddSettings, BuildSettings
from aladin_network.errors import InputError
from aladin_network.graphs.network import query_network
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.photos.decoding import read_image
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import TOKEN_DTYPES
from tests.index.searching import run_search

# As long as the network takes texts, and of few different words: they share regions.
LONG = " ".join(["two red dogs run on the green grass"] * 3)


def assert_adds_up(hit: SearchHit, words: int) -> None:
    assert hit.stages.align is not None and hit.evidence is not None
    assert len(hit.evidence) == words
    total = sum(entry.score for entry in hit.evidence)
    assert total == pytest.approx(hit.stages.align.score, abs=1e-5)
    sizes = sum(abs(entry.score) for entry in hit.evidence)
    for entry in hit.evidence:
        assert entry.share == pytest.approx(entry.score / sizes)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_of_what_was_built_and_what_was_added_in_both_directions(
    tmp_path: Path,
    tiny_checkpoint: Path,
    search_index: SearchIndex,
    images: list[ImageItem],
    texts: list[TextItem],
    dtype: Any,
) -> None:
    checkpoint = search_index.checkpoint
    model = checkpoint.model
    settings = BuildSettings(token_dtype=dtype)
    build_index(tiny_checkpoint, tmp_path / "index", images[:12], texts[:8], settings)
    with (
        open_index(tmp_path / "index", checkpoint=checkpoint) as index,
        closing(ChangesWriter(index.path, checkpoint.model_id)) as writer,
    ):
        add_items(writer, model, "images", images[12:], AddSettings())
        add_items(writer, model, "texts", texts[8:], AddSettings())
        searcher = TwoStageSearcher(index)
        asked: list[tuple[Any, ...]] = [
            (encode_photos(model, [read_image(images[3].photo)]), "image", "texts", None, size_px)
            for size_px in ((40, 30), None)
        ]
        for text in ("a red dog", LONG):
            for precise in ("float32", "bfloat16"):
                query = encode_texts(query_network(model, "text", precision=precise), [text])
                asked.append((query, "text", "images", text, None))
        for query, modality, target, text, size_px in asked:
            for rerank in (True, False):
                options = {"k": 100, "explain": True, "text": text, "size_px": size_px}
                found = run_search(searcher, query, modality, target, rerank=rerank, **options)
                assert len(found.hits) == (23 if target == "images" else 16)
                for hit in found.hits:
                    assert_adds_up(hit, len(model.text.encoder.spans(text or hit.text or "")))
                    if target == "texts":
                        boxes = [entry.box is None for entry in hit.evidence or ()]
                        assert boxes == [size_px is None] * len(boxes)


def test_a_pair_alone_scores_as_in_a_search(
    searcher: TwoStageSearcher, search_index: SearchIndex, images: list[ImageItem]
) -> None:
    checkpoint = search_index.checkpoint
    model = checkpoint.model
    text = encode_texts(model, [LONG])
    photo = encode_photos(model, [read_image(images[3].photo)])
    cases: list[tuple[Encoding, Any, Any, str | None, tuple[int, int] | None]] = [
        (text, "text", "images", LONG, None),
        (photo, "image", "texts", None, (40, 30)),
    ]
    for query, modality, target, words, size_px in cases:
        found = run_search(
            searcher, query, modality, target, k=100, explain=True, text=words, size_px=size_px
        )
        collection = searcher.index.collection(target)
        for hit in found.hits:
            item = collection.items.by_id(hit.id)
            assert item is not None
            pair = score_pair(model, Term(query, modality, words, size_px), collection, item)
            assert pair.match == pytest.approx(hit.stages.match.score, abs=1e-6)
            assert hit.stages.align is not None
            assert pair.align == pytest.approx(hit.stages.align.score, abs=1e-6)
            assert word_evidence(*pair.pair) == hit.evidence


def test_without_tokens_there_is_no_evidence(
    tmp_path: Path,
    search_index: SearchIndex,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
) -> None:
    bare = replace(
        made_up(["a", "b"]),
        tokens=np.zeros((0, 8), dtype=np.float32),
        lengths=np.zeros(2, dtype=np.int64),
    )
    write_made_up(tmp_path / "index", images=bare)
    checkpoint = search_index.checkpoint
    with open_index(tmp_path / "index", checkpoint=checkpoint) as index:
        collection = index.collection("images")
        item = collection.items.by_id("a")
        assert item is not None
        query = encode_texts(checkpoint.model, ["a dog"])
        with pytest.raises(InputError, match="imported without tokens"):
            score_pair(checkpoint.model, Term(query, "text", "a dog"), collection, item)
