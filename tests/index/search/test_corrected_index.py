"""The life of an index with a hubness correction, against every pair scored one by one."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.exchange.exporter import export_index
from aladin_index.exchange.importer import import_index
from aladin_index.generations.compact import compact_index
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.evidence import score_pair, word_evidence
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.inference import encode_texts
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.types import Target
from tests.index.corrections import QUERIES, correction_of
from tests.index.search.conftest import MakeItems
from tests.index.search.reference import Reference

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


def check(root: Path) -> None:
    """Compare searches in both directions with every pair scored by itself."""
    with open_index(root) as index:
        correction = index.correction()
        assert correction is not None
        searcher = TwoStageSearcher(index)
        reference, held = Reference(searcher, correction), index.manifest.targets
        terms = [Term(encode_texts(index.checkpoint.model, [text]), "text") for text in QUERIES]
        terms += [searcher.stored_query(f"photo {number}") for number in (1, 3)]
        options = [SearchOptions(k=30, candidates=n, fusion=0.5) for n in ("exhaustive", 99, 4)]
        options.append(SearchOptions(k=5, candidates=5, rerank=False))
        for query in terms:
            target: Target = "images" if query.modality == "text" else "texts"
            for each in options if target in held else ():
                hits = searcher.search(query, target, each).hits
                expected = reference.answer((query,), target, each).hits
                assert len(hits) == len(expected)
                for hit, of in zip(hits, expected, strict=True):
                    assert hit.score == pytest.approx(of.score, abs=2e-3)
                    assert hit.stages.align is not None
                    if hit.id == of.id:  # or it is as good to three digits
                        assert hit.stages.match.score == pytest.approx(of.match, abs=1e-5)
                        assert hit.stages.align.score == pytest.approx(of.align, abs=2e-3)


def test_a_built_index_is_ordered_by_corrected_scores(corrected: Path) -> None:
    check(corrected)
    verify_index(corrected)  # raises an error if it is damaged


def test_the_words_of_a_pair_add_up_to_its_alignment_score(corrected: Path) -> None:
    """What a correction subtracts from the order is no part of the evidence."""
    with open_index(corrected) as index:
        collection, model = index.collection("images"), index.checkpoint.model
        query = Term(encode_texts(model, [QUERIES[0]]), "text", text=QUERIES[0])
        words = query.encoding.item_tokens(0)
        for item in collection.items.by_rows(range(collection.count)):
            pair = score_pair(model, query, collection, item)
            best = (words @ collection.tokens(item.row).T).max(axis=1)
            assert pair.align == pytest.approx(float(best.sum()), abs=2e-3)
            evidence = [each.score for each in word_evidence(pair.pair)]
            assert evidence == pytest.approx(best.tolist(), abs=1e-3)


@pytest.mark.parametrize("factory", ["SQ8", "IVF2,Flat", "HNSW8,Flat"])
def test_every_first_stage_finds_the_best_corrected_cosines(
    corrected_checkpoint: Path, images: list[ImageItem], tmp_path: Path, factory: str
) -> None:
    settings = replace(SETTINGS, ann=factory)
    build_index(corrected_checkpoint, tmp_path / "index", images, None, settings)
    check(tmp_path / "index")


def test_changes_and_compaction_keep_the_biases_right(index_of: Path, made_up: MakeItems) -> None:
    with (
        open_index(index_of) as index,
        closing(ChangesWriter(index_of, index.manifest.model.id)) as writer,
    ):
        writer.add("images", made_up(["new 0", "new 1", "new 2"]), "error")
        writer.delete("images", ["photo 5", "new 1"])
    check(index_of)
    compact_index(index_of, keep=0)
    with open_index(index_of) as index:
        assert index.images is not None
        assert (index.images.entry.corrected, index.images.entry.count) == (True, 24)
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
    tiny_checkpoint: Path, published: Path, images: list[ImageItem], tmp_path: Path
) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    correction = correction_of(checkpoint, [item.path for item in images[:6]], 0.0)
    with open_index(published) as plain:
        constants = replace(correction.constants, fusion=plain.checkpoint.fusion)
        replace(correction, constants=constants).save(checkpoint / CORRECTION)
        build_index(checkpoint, tmp_path / "index", images, None, replace(SETTINGS, ann="auto"))
        with open_index(tmp_path / "index") as zero:
            assert zero.images is not None and plain.images is not None
            dim = plain.images.entry.embedding_dim
            assert np.array_equal(zero.images.embeddings[:, :dim], plain.images.embeddings)
            assert (zero.images.embeddings[:, dim:] == 0).all()
            query = Term(encode_texts(plain.checkpoint.model, QUERIES[:1]), "text")
            ours, theirs = (
                TwoStageSearcher(each).search(query, "images", SearchOptions(k=23)).hits
                for each in (zero, plain)
            )
            assert [hit.id for hit in ours] == [hit.id for hit in theirs]
            assert [hit.stages.align for hit in ours] == [hit.stages.align for hit in theirs]
