"""Searches by a box of a photo, against loops over all items."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import ImageItem
from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.box_query import fit_embedder
from aladin_index.search.collection import SearchBackend
from aladin_index.search.evidence import region_boxes
from aladin_index.search.found_box import BoxFinder
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import Box
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import InputError
from aladin_network.types import Target
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.searching import assert_typed

BOX: Box = (0.2, 0.3, 0.8, 0.75)
ALL = SearchOptions(k=30, candidates=30, explain=True)
# Tokens are stored in 16 bits.
CLOSE = 5e-3


def boxed(searcher: TwoStageSearcher, photo: str = "photo 3", box: Box = BOX) -> Term:
    """Return the box of a stored photo as a query."""
    return searcher.stored_query(photo)._replace(box=box)


def tokens_of(index: SearchBackend, target: Target) -> dict[str, NDArray[np.float32]]:
    """Return the tokens of all items by their ids."""
    collection = index.collection(target)
    items = collection.items.by_rows(list(range(collection.count)))
    return {item.id: collection.tokens(item.row) for item in items}


def inside_by_loops(
    searcher: TwoStageSearcher, photo: str, box: Box
) -> tuple[list[int], list[Box]]:
    """Return the regions of which a third is inside of a box, and the boxes of all."""
    query = searcher.stored_query(photo)
    count = len(query.encoding.item_tokens(0))
    boxes = region_boxes(searcher.index.checkpoint.model, count, query.size_px)
    inside: list[int] = []
    for number, (x0, y0, x1, y1) in enumerate(boxes):
        wide = max(min(x1, box[2]) - max(x0, box[0]), 0)
        high = max(min(y1, box[3]) - max(y0, box[1]), 0)
        if wide * high >= (x1 - x0) * (y1 - y0) / 3:
            inside.append(number)
    return inside, boxes


def embedding_of(searcher: TwoStageSearcher, photo: str, inside: list[int]) -> NDArray[np.float32]:
    """Return the embedding of some regions of a photo."""
    embedder, tokens = (
        fit_embedder(searcher.index.collection("images")),
        tokens_of(searcher.index, "images")[photo],
    )
    assert embedder is not None
    count = len(tokens) - searcher.index.checkpoint.model.zero_tokens
    return embedder.embed(tokens[inside], tokens[:count])


def slow_photos(searcher: TwoStageSearcher, photo: str, box: Box) -> dict[str, tuple[float, ...]]:
    """Return the score, cosine and alignment of all other photos with a box of a photo."""
    inside, _ = inside_by_loops(searcher, photo, box)
    collection = searcher.index.collection("images")
    tokens, embedding = tokens_of(searcher.index, "images"), embedding_of(searcher, photo, inside)
    asked = tokens[photo][inside]
    found: dict[str, tuple[float, ...]] = {}
    for item in collection.items.by_rows(list(range(collection.count))):
        align = sum(max(float(one @ other) for other in tokens[item.id]) for one in asked)
        match = float(collection.embedding(item.row) @ embedding)
        found[item.id] = 0.75 * align / len(inside) + 0.25 * match, match, align
    return found


def test_photos_are_scored_by_the_regions_inside_which_have_their_best_regions(
    searcher: TwoStageSearcher,
) -> None:
    answer = searcher.search(boxed(searcher), "images", ALL)
    expected = slow_photos(searcher, "photo 3", BOX)
    del expected["photo 3"]
    assert_typed(answer)
    assert (answer.reranked, answer.degraded, answer.unreliable_because) == (True, [], None)
    assert [hit.id for hit in answer.hits] == sorted(expected, key=lambda each: -expected[each][0])
    inside, own = inside_by_loops(searcher, "photo 3", BOX)
    tokens, model = tokens_of(searcher.index, "images"), searcher.index.checkpoint.model
    for hit in answer.hits:
        stages, evidence = hit.stages, hit.region_evidence
        assert stages.align is not None and evidence is not None and hit.evidence is None
        scores = hit.score, stages.match.score, stages.align.score
        assert scores == pytest.approx(expected[hit.id], abs=CLOSE)
        assert [each.query_region for each in evidence] == inside
        assert [each.query_box for each in evidence] == [pytest.approx(own[n]) for n in inside]
        total = sum(each.score for each in evidence)
        assert total == pytest.approx(stages.align.score, abs=1e-4)
        assert sum(abs(each.share) for each in evidence) == pytest.approx(1)
        boxes, cosines = (
            region_boxes(model, 16, hit.size_px),
            tokens["photo 3"][inside] @ tokens[hit.id].T,
        )
        for each, row in zip(evidence, cosines, strict=True):
            assert row[each.region] == pytest.approx(row.max(), abs=CLOSE)
            assert each.box == pytest.approx(boxes[each.region])
        kept = np.array([own[number] for number in inside])
        [found] = BoxFinder(BOX, kept).find(cosines[None, :, : len(boxes)], np.array(boxes))
        assert hit.found == pytest.approx(found, abs=1e-3)


def test_the_photo_itself_is_first_and_found_in_its_place(searcher: TwoStageSearcher) -> None:
    for photo in ("photo 3", "photo 11"):
        query = searcher.stored_query(photo)._replace(own_id=None, box=BOX)
        first = searcher.search(query, "images").hits[0]
        assert first.id == photo
        assert first.found == pytest.approx(BOX, abs=1e-3)
        assert first.region_evidence is None  # which was not asked for


def test_texts_are_compared_with_the_regions_inside(searcher: TwoStageSearcher) -> None:
    answer = searcher.search(boxed(searcher), "texts", ALL)
    inside, boxes = inside_by_loops(searcher, "photo 3", BOX)
    photo, words = (
        tokens_of(searcher.index, "images")["photo 3"],
        tokens_of(searcher.index, "texts"),
    )
    zero = list(range(len(boxes), len(photo)))  # without a box, term of every photo
    kept = photo[inside + zero]
    assert len(answer.hits) == len(words)
    for hit in answer.hits:
        align = sum(max(float(word @ region) for region in kept) for word in words[hit.id])
        assert hit.stages.align is not None
        assert hit.stages.align.score == pytest.approx(align, abs=CLOSE)
        assert hit.evidence
        assert {each.region for each in hit.evidence} <= {*inside, *zero}
        assert all(each.box == pytest.approx(boxes[each.region]) for each in hit.evidence)
        assert (hit.found, hit.region_evidence, hit.probability) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "by", "passes"),
    [
        ({"rerank": False}, 1, None),
        ({"candidates": "exhaustive"}, 0, None),
        ({"fusion": 1.0}, 2, None),
        ({"candidates": 30, "filter": {"parity": "odd"}, "k": 4, "offset": 2}, 0, 1),
    ],
)
def test_options_apply_to_boxes(
    searcher: TwoStageSearcher, options: dict[str, Any], by: int, passes: int | None
) -> None:
    answer = searcher.search(boxed(searcher), "images", SearchOptions(**{"k": 30} | options))
    expected = slow_photos(searcher, "photo 3", BOX)
    del expected["photo 3"]
    order = sorted(expected, key=lambda each: -expected[each][by])
    if passes is not None:
        order = [name for name in order if int(name.split()[1]) % 2 == passes][2:6]
    assert [hit.id for hit in answer.hits] == order
    assert all(hit.found is not None for hit in answer.hits)


def test_photos_that_were_added_are_found(
    index_copy: Path, images: list[ImageItem], searcher: TwoStageSearcher
) -> None:
    collection = searcher.index.collection("images")
    item = collection.items.by_ids(["photo 3"])[0]
    assert item is not None
    tokens = collection.tokens(item.row)
    copy = ItemBatch(
        items=[item._replace(id="copy", row=-1)],
        embeddings=collection.embedding(item.row)[None],
        tokens=tokens,
        lengths=np.array([len(tokens)]),
    )
    with open_index(index_copy) as index:
        live = TwoStageSearcher(index)
        with closing(ChangesWriter(index_copy, index.checkpoint.model_id)) as writer:
            writer.add("images", copy, "error")
        answer = live.search(boxed(live), "images", ALL)
    assert len(answer.hits) == len(images)
    assert answer.hits[0].id == "copy"
    assert answer.hits[0].found == pytest.approx(BOX, abs=1e-3)


def test_an_engine_answers_as_files_do(
    published: Path, tmp_path: Path, searcher: TwoStageSearcher
) -> None:
    server = MemoryServer()
    push_index(published, tmp_path / "remote", LOCATION, MemoryEngine(server), PushSettings())
    with open_engine_index(tmp_path / "remote", MemoryEngine(server)) as index:
        engine = TwoStageSearcher(index)
        for target in ("images", "texts"):
            found = engine.search(boxed(engine), target, ALL)
            expected = searcher.search(boxed(searcher), target, ALL)
            assert [hit.id for hit in found.hits] == [hit.id for hit in expected.hits]
            for hit, other in zip(found.hits, expected.hits, strict=True):
                assert hit.score == pytest.approx(other.score, abs=1e-3)
                assert hit.found == (None if other.found is None else pytest.approx(other.found))


def test_a_box_is_a_part_of_a_query(searcher: TwoStageSearcher) -> None:
    text = searcher.stored_query("text 2")
    terms = (text._replace(role="all"), boxed(searcher)._replace(role="all", weight=2.0))
    answer = searcher.search(terms, "images", ALL)
    of_text = {h.id: h.score for h in searcher.search(text, "images", ALL).hits}
    of_box = {h.id: h for h in searcher.search(boxed(searcher), "images", ALL).hits}
    scores = np.array([hit.score for hit in of_box.values()])
    assert answer.terms is not None
    assert [term.box for term in answer.terms] == [None, BOX]
    for hit in answer.hits:
        alone = of_box[hit.id]
        standardised = (alone.score - scores.mean()) / scores.std()
        assert hit.score == pytest.approx(of_text[hit.id] + 2 * standardised, abs=1e-2)
        assert hit.terms is not None
        _, term = hit.terms
        assert (term.found, term.region_evidence) == (alone.found, alone.region_evidence)


def test_there_are_no_probabilities(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with open_index(index_copy) as index:
        calibration = make_calibration(index.manifest.model.id)
        publish_entries(index_copy, index.manifest, {}, "calibrate", calibration)
    with open_index(index_copy) as index:
        searcher = TwoStageSearcher(index)
        answer = searcher.search(boxed(searcher), "texts", SearchOptions())
        assert (answer.probabilities_reliable, answer.unreliable_because) == (False, "box")
        assert answer.no_match is None
        assert all(hit.probability is None for hit in answer.hits)
        with pytest.raises(InputError, match="min_probability: hits of a query by a box have no"):
            searcher.search(boxed(searcher), "texts", SearchOptions(min_probability=0.5))


@pytest.mark.parametrize(
    ("item", "changes", "message"),
    [
        ("text 2", {}, "a photo to take a part of, got 'text 2', which is a"),
        ("photo 3", {"size_px": None}, "box: the places of the photo's regions are not known"),
        (
            "photo 3",
            {"boxes": np.full((16, 4), (0.0, 0.0, 0.1, 0.1), dtype=np.float32)},
            "box: no region of the photo overlaps it",
        ),
    ],
)
def test_what_has_no_part_to_take_is_refused(
    searcher: TwoStageSearcher, item: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        searcher.search(boxed(searcher, item)._replace(**changes), "images")


def test_photos_without_regions_are_refused(
    made_up: Callable[..., ItemBatch], write_made_up: Callable[..., int], tmp_path: Path
) -> None:
    write_made_up(tmp_path / "index", texts=made_up(["t"]))
    with open_index(tmp_path / "index") as index:
        searcher = TwoStageSearcher(index)
        query = searcher.stored_query("t")._replace(modality="image", size_px=(32, 32), box=BOX)
        encoding = query.encoding
        four = np.tile(encoding.tokens[:, :1], (1, 16, 1))
        query = query._replace(encoding=type(encoding).of_item(encoding.embedding[0], four[0]))
        with pytest.raises(InputError, match="box: expected an index of photos with regions"):
            searcher.search(query, "texts")


def test_a_model_without_a_trained_alignment_is_refused(search_index: SearchIndex) -> None:
    searcher = TwoStageSearcher(search_index)
    searcher._planner._is_trained = False  # as of a converted CLIP
    with pytest.raises(InputError, match="box: the alignment of this index's model was not"):
        searcher.search(boxed(searcher), "images")
    assert searcher.search(boxed(searcher), "images", SearchOptions(fusion=0.5)).hits
