"""Evidence adds up to the alignment score, whatever the tokens' form and origin."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.item_changer import add_items
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.evidence import score_pair, word_evidence
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import AddSettings, BuildSettings
from aladin_network.graphs.network import query_network
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.photos.decoding import read_image
from aladin_network.types import TOKEN_DTYPES
from tests.index.searching import run_search

# As long as the network takes texts, and of few different words: they share regions.
LONG = " ".join(["two red dogs run on the green grass"] * 3)


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
    photo = encode_photos(model, [read_image(images[3].photo)])
    asked: list[tuple[Any, ...]] = [
        (photo, "image", "texts", None, size_px) for size_px in ((40, 30), None)
    ]
    for text in ("a red dog", LONG):
        for precise in ("float32", "bfloat16"):
            query = encode_texts(query_network(model, "text", precision=precise), [text])
            asked.append((query, "text", "images", text, None))
    with (
        open_index(tmp_path / "index", checkpoint=checkpoint) as index,
        closing(ChangesWriter(index.path, checkpoint.model_id)) as writer,
    ):
        add_items(writer, model, "images", images[12:], AddSettings())
        add_items(writer, model, "texts", texts[8:], AddSettings())
        searcher = TwoStageSearcher(index)
        for number, (query, modality, target, text, size_px) in enumerate(asked):
            collection = index.collection(target)
            options = {"k": 100, "explain": True, "text": text, "size_px": size_px}
            options["rerank"] = number % 2 == 0
            found = run_search(searcher, query, modality, target, **options)
            assert len(found.hits) == (23 if target == "images" else 16)
            for hit in found.hits:
                evidence, item = hit.evidence or [], collection.items.by_id(hit.id)
                assert item is not None and hit.stages.align is not None
                assert len(evidence) == len(model.text.encoder.spans(text or hit.text or ""))
                total = sum(entry.score for entry in evidence)
                assert total == pytest.approx(hit.stages.align.score, abs=1e-5)
                sizes = sum(abs(entry.score) for entry in evidence)
                for entry in evidence:
                    assert entry.share == pytest.approx(entry.score / sizes)
                    assert (text or hit.text or "")[entry.start : entry.end] == entry.token
                    assert target == "images" or (entry.box is None) == (size_px is None)
                    row, column = divmod(entry.region, 4)  # the photo is squashed into 4 x 4 cells
                    cell = (column / 4, row / 4, (column + 1) / 4, (row + 1) / 4)
                    assert entry.box in (None, pytest.approx(cell))
                # A pair alone scores as in a search.
                pair = score_pair(model, Term(query, modality, text, size_px), collection, item)
                assert pair.match == pytest.approx(hit.stages.match.score, abs=1e-6)
                assert pair.align == pytest.approx(hit.stages.align.score, abs=1e-6)
                assert word_evidence(pair.pair) == evidence
