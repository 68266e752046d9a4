"""Searches of an index with a hubness correction, against every pair scored one by one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.exchange.exporter import export_index
from aladin_index.exchange.importer import import_index
from aladin_index.generations.compact import compact_index
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import verify_index
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.evidence import score_pair, word_evidence
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.photos.decoding import read_image
from aladin_network.photos.files import PhotoFile
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.hub_correction import CORRECTION, EncodedItems, HubCorrection
from aladin_network.types import Target
from tests.index.corrections import FUSION, QUERIES, correction_of

SETTINGS = BuildSettings(shard_items=5, batch_size=3, ann="exact")


@pytest.fixture(scope="module")
def corrected(
    corrected_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    out = tmp_path_factory.mktemp("corrected") / "index"
    build_index(corrected_checkpoint, out, images, texts, SETTINGS)
    return out


@pytest.fixture
def index_of(corrected: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(corrected, tmp_path / "index"))


def expected(
    index: SearchIndex, correction: HubCorrection, target: Target, query: Encoding
) -> dict[str, tuple[float, float, float]]:
    """By id the fused corrected score, the cosine and the alignment score of every item."""
    collection = index.collection(target)
    words = query.item_tokens(0)
    found: dict[str, tuple[float, float, float]] = {}
    for item_id, row in collection.items.ids():
        embedding, tokens = collection.embedding(row), collection.tokens(row)
        match = float(embedding @ query.embedding[0])
        pairs = words @ tokens.T if target == "images" else tokens @ words.T
        align = float(pairs.max(axis=1).sum())
        item = EncodedItems.of(Encoding.of_item(embedding, tokens))
        of_match, of_align = correction.biases(target, item)[0].tolist()
        times = len(words) if target == "images" else 1
        fused = FUSION.combine(align - times * of_align, match - of_match)
        found[item_id] = float(fused), match, align
    return found


def check(root: Path, **options: Any) -> None:
    """Compare searches in both directions with every pair scored by itself."""
    with open_index(root) as index:
        correction = index.correction()
        assert correction is not None
        searcher, model = TwoStageSearcher(index), index.checkpoint.model
        some = [index.collection("images").embedding(row) for row in (0, 3)]
        tokens = [index.collection("images").tokens(row) for row in (0, 3)]
        asked: list[tuple[Target, Encoding, Any]] = [
            ("images", encode_texts(model, [text]), "text") for text in QUERIES
        ]
        asked += [
            ("texts", Encoding.of_item(each, of), "image")
            for each, of in zip(some, tokens, strict=True)
        ]
        for target, query, modality in asked:
            scores = expected(index, correction, target, query)
            count = len(scores)
            answer = searcher.search(
                Term(query, modality),
                target,
                SearchOptions(k=count, candidates=count, fusion=0.5, **options),
            )
            assert len(answer.hits) == count
            for hit in answer.hits:
                fused, match, align = scores[hit.id]
                assert hit.score == pytest.approx(fused, abs=2e-3)
                assert hit.stages.match.score == pytest.approx(match, abs=1e-5)
                assert hit.stages.align is not None
                assert hit.stages.align.score == pytest.approx(align, abs=2e-3)
            assert [hit.score for hit in answer.hits] == sorted(
                (hit.score for hit in answer.hits), reverse=True
            )


def test_the_words_of_a_pair_add_up_to_its_alignment_score(corrected: Path) -> None:
    """What a correction subtracts from the order is no part of the evidence."""
    with open_index(corrected) as index:
        correction, collection = index.correction(), index.collection("images")
        assert correction is not None
        model = index.checkpoint.model
        query = Term(encode_texts(model, [QUERIES[0]]), "text", text=QUERIES[0])
        scores = expected(index, correction, "images", query.encoding)
        for item in collection.items.by_rows(range(collection.count)):
            pair = score_pair(model, query, collection, item)
            assert pair.align == pytest.approx(scores[item.id][2], abs=2e-3)
            assert pair.align == pytest.approx(
                sum(each.score for each in word_evidence(*pair.pair))
            )


def test_searches_are_ordered_by_corrected_scores(corrected: Path) -> None:
    check(corrected)
    verify_index(corrected)  # raises an error if it is damaged


@pytest.mark.parametrize("factory", ["exact", "SQ8", "IVF2,Flat", "HNSW8,Flat"])
def test_the_first_stage_finds_the_best_corrected_cosines(
    corrected_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
    factory: str,
) -> None:
    build_index(
        corrected_checkpoint, tmp_path / "index", images, texts, replace(SETTINGS, ann=factory)
    )
    with open_index(tmp_path / "index") as index:
        correction = index.correction()
        assert correction is not None
        searcher, model = TwoStageSearcher(index), index.checkpoint.model
        plain_differs = False
        for text in QUERIES:
            query = encode_texts(model, [text])
            collection = index.collection("images")
            vectors = collection.embeddings(range(collection.count))
            tokens = [collection.tokens(row) for row in range(collection.count)]
            items = Encoding.concatenate(
                [Encoding.of_item(*each) for each in zip(vectors, tokens, strict=True)]
            )
            biases = correction.biases("images", EncodedItems.of(items))
            cosines = vectors @ query.embedding[0]
            best = np.argsort(biases[:, 0] - cosines, kind="stable")[:5]
            answer = searcher.search(
                Term(query, "text"),
                "images",
                SearchOptions(k=5, candidates=5, rerank=False),
            )
            ids = [item.id for item in collection.items.by_rows(best.tolist())]
            assert [hit.id for hit in answer.hits] == ids
            shown = [hit.stages.match.score for hit in answer.hits]
            assert shown == pytest.approx(cosines[best].tolist(), abs=1e-5)
            plain_differs |= best.tolist() != np.argsort(-cosines)[:5].tolist()
        assert plain_differs  # or the biases were too small to test anything


def test_items_of_one_modality_are_compared_by_cosines(corrected: Path) -> None:
    with open_index(corrected) as index:
        searcher, collection = TwoStageSearcher(index), index.collection("images")
        answer = searcher.search(
            searcher.stored_query("photo 3")._replace(own_id=None), "images", SearchOptions(k=23)
        )
        vectors = collection.embeddings(range(collection.count))
        by_id = dict(collection.items.ids())
        cosines = vectors @ vectors[by_id["photo 3"]]
        assert [hit.score for hit in answer.hits] == pytest.approx(sorted(cosines, reverse=True))
        assert answer.hits[0].score == pytest.approx(1)


@pytest.mark.parametrize("candidates", ["exhaustive", 4])
def test_bounds_and_small_blocks_find_the_same_hits(corrected: Path, candidates: Any) -> None:
    with open_index(corrected) as index:
        searcher, model = TwoStageSearcher(index), index.checkpoint.model
        correction = index.correction()
        assert correction is not None
        for text in QUERIES:
            query = encode_texts(model, [text])
            answer = searcher.search(
                Term(query, "text"),
                "images",
                SearchOptions(k=4, candidates=candidates, fusion=1.0),
            )
            scores = expected(index, correction, "images", query)
            for hit in answer.hits:
                assert hit.stages.match.score == pytest.approx(scores[hit.id][1], abs=1e-5)
            if candidates == "exhaustive":
                every = searcher.search(
                    Term(query, "text"),
                    "images",
                    SearchOptions(k=4, candidates=23, fusion=1.0),
                )
                assert [hit.id for hit in answer.hits] == [hit.id for hit in every.hits]


def new_items(root: Path, images: Sequence[ImageItem]) -> ItemBatch:
    with open_index(root) as index:
        model = index.checkpoint.model
        collection = index.collection("images")
        items = collection.items.by_rows(list(range(len(images))))
    encoded = encode_photos(model, [read_image(PhotoFile(item.path)) for item in images])
    encoded = encoded._replace(embedding=-encoded.embedding[::1])  # items that are not there yet
    values = [encoded.item_tokens(row) for row in range(len(images))]
    return ItemBatch(
        items=[item._replace(id=f"new {place}") for place, item in enumerate(items)],
        embeddings=encoded.embedding,
        tokens=np.concatenate(values),
        lengths=np.array([len(each) for each in values], dtype=np.int64),
    )


def test_changes_and_compaction_keep_the_biases_right(
    index_of: Path, images: list[ImageItem]
) -> None:
    with open_index(index_of) as index:
        model_id = index.manifest.model.id
    writer = ChangesWriter(index_of, model_id)
    writer.add("images", new_items(index_of, images[:3]), "error")
    writer.delete("images", ["photo 5", "new 1"])
    writer.close()
    check(index_of)
    compact_index(index_of, keep=0)
    with open_index(index_of) as index:
        assert index.images is not None
        assert index.images.entry.corrected
        assert index.images.entry.count == 24
    check(index_of)


def test_tuning_keeps_the_correction(index_of: Path) -> None:
    tune_index(index_of, TuneOptions(at=3, num_queries=8))
    check(index_of)


def test_parts_are_merged_with_their_correction(
    corrected_checkpoint: Path, images: list[ImageItem], texts: list[TextItem], tmp_path: Path
) -> None:
    parts = [tmp_path / "1", tmp_path / "2"]
    build_index(corrected_checkpoint, parts[0], images[:9], texts[:7], SETTINGS)
    build_index(corrected_checkpoint, parts[1], images[9:], texts[7:], SETTINGS)
    merge_indexes(parts, tmp_path / "merged", SETTINGS)
    check(tmp_path / "merged")


def test_indexes_with_different_corrections_are_merged_without(
    corrected_checkpoint: Path, tiny_checkpoint: Path, images: list[ImageItem], tmp_path: Path
) -> None:
    parts = [tmp_path / "1", tmp_path / "2"]
    build_index(corrected_checkpoint, parts[0], images[:9], None, SETTINGS)
    build_index(tiny_checkpoint, parts[1], images[9:], None, SETTINGS)
    merge_indexes(parts, tmp_path / "merged", SETTINGS)
    build_index(tiny_checkpoint, tmp_path / "plain", images, None, SETTINGS)
    with open_index(tmp_path / "merged") as merged, open_index(tmp_path / "plain") as plain:
        assert merged.manifest.correction is None
        assert merged.images is not None
        assert plain.images is not None
        np.testing.assert_allclose(merged.images.embeddings, plain.images.embeddings, atol=1e-6)


def test_exported_embeddings_have_no_biases(
    corrected: Path, corrected_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    export_index(corrected, tmp_path / "exported")
    import_index(tmp_path / "exported", corrected_checkpoint, tmp_path / "again")
    check(tmp_path / "again")
    import_index(tmp_path / "exported", tiny_checkpoint, tmp_path / "plain")
    with open_index(tmp_path / "plain") as index:
        assert index.manifest.correction is None
        assert index.images is not None
        assert index.images.embeddings.shape[1] == index.images.entry.embedding_dim


def test_an_export_that_is_imported_in_its_own_place_corrects_an_index(
    index_copy: Path, corrected_checkpoint: Path, tmp_path: Path
) -> None:
    with open_index(index_copy) as index:
        assert index.manifest.correction is None
        writer = ChangesWriter(index_copy, index.manifest.model.id)
    writer.delete("images", ["photo 5"])
    writer.close()
    export_index(index_copy, tmp_path / "exported")
    import_index(tmp_path / "exported", corrected_checkpoint, index_copy)
    check(index_copy)
    verify_index(index_copy)
    with open_index(index_copy) as index:
        assert index.manifest.generation == 2
        assert index.collection("images").count == 22
        assert index.collection("images").items.by_id("photo 5") is None


def test_a_rebuilt_index_keeps_its_correction(
    index_of: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    build_index(tiny_checkpoint, index_of, images[:9], None, SETTINGS)
    with open_index(index_of) as index:
        assert index.manifest.generation == 2
        assert index.manifest.correction is not None
        assert index.images is not None
        assert index.images.entry.corrected


def test_weights_of_zero_change_nothing(
    tiny_checkpoint: Path,
    published: Path,
    images: list[ImageItem],
    texts: list[TextItem],
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, checkpoint)
    correction = correction_of(checkpoint, [item.path for item in images[:6]], 0.0)
    with open_index(published) as index:
        fusion = index.checkpoint.fusion
    replace(correction, constants=replace(correction.constants, fusion=fusion)).save(
        checkpoint / CORRECTION
    )
    build_index(checkpoint, tmp_path / "index", images, texts, replace(SETTINGS, ann="auto"))
    with open_index(tmp_path / "index") as zero, open_index(published) as plain:
        assert zero.images is not None
        assert plain.images is not None
        dim = plain.images.entry.embedding_dim
        assert np.array_equal(zero.images.embeddings[:, :dim], plain.images.embeddings)
        assert (zero.images.embeddings[:, dim:] == 0).all()
        for text in QUERIES:
            query = Term(encode_texts(plain.checkpoint.model, [text]), "text")
            ours, theirs = (
                TwoStageSearcher(each).search(query, "images", SearchOptions(k=23)).hits
                for each in (zero, plain)
            )
            assert [hit.id for hit in ours] == [hit.id for hit in theirs]
            assert [hit.stages.align for hit in ours] == [hit.stages.align for hit in theirs]
            assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs])
