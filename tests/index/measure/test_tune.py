from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import live_generation
from aladin_index.generations.history import pending_changes
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.measure.fidelity import (
    TuneQueries,
    exhaustive_tops,
    fidelity_of,
    queries_of_encoding,
    stored_queries,
)
from aladin_index.measure.tune import fewest_enough, tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import ConfigError
from aladin_network.inference import encode_texts
from aladin_network.model import AladinModel
from tests.index.searching import run_search

OPTIONS = TuneOptions(fidelity=0.9, at=3, num_queries=20, max_candidates=20)


def test_the_new_generation_is_searched_as_was_found_best(index_copy: Path) -> None:
    report = tune_index(index_copy, OPTIONS)
    assert report.generation == live_generation(index_copy) == 2
    with open_index(index_copy) as index:
        assert index.manifest.images == report.collections["images"]
        for target in ("images", "texts"):
            entry, collection = report.collections[target], getattr(index, target)
            tuning = entry.tuning
            assert tuning is not None
            assert (tuning.at, tuning.fidelity_wanted) == (3, 0.9)
            assert index.manifest.candidates(target) == tuning.candidates
            queries = stored_queries(index.texts if target == "images" else index.images, 20)
            assert tuning.queries == len(queries.tokens)
            stored = (
                TwoStageSearcher(index)
                .stored_query(f"{queries.modality} 3".replace("image", "photo"))
                .encoding
            )
            assert any(np.array_equal(each, stored.item_tokens(0)) for each in queries.tokens)
            assert any(np.array_equal(each, stored.embedding[0]) for each in queries.embeddings)
            fusion = index.checkpoint.fusion.text_to_image
            if target == "texts":
                fusion = index.checkpoint.fusion.image_to_text
            tops = exhaustive_tops(collection, queries, fusion, 3)
            for point in tuning.curve:
                assert point.fidelity == fidelity_of(
                    collection, collection.ann, queries, tops, point.candidates
                )
            if tuning.candidates > 3 and tuning.fidelity >= 0.9:
                fewer = fidelity_of(
                    collection, collection.ann, queries, tops, tuning.candidates - 1
                )
                assert fewer < 0.9 <= tuning.fidelity
            assert entry.ann.recall_at == tuning.candidates
            assert entry.ann.recall == 1.0
        # A search that does not say takes as many.
        query, _ = TwoStageSearcher(index).stored_query("text 3")[:2]
        result = run_search(TwoStageSearcher(index), query, "text", "images", k=3)
        assert result.candidates == index.manifest.candidates("images")


@pytest.mark.parametrize("is_shared", [True, False])
def test_files_are_shared_or_copied_and_the_old_generation_stays(
    index_copy: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    def refuse(_self: object, *_names: object) -> None:
        raise OSError("no second names here")

    if not is_shared:
        monkeypatch.setattr("os.link", refuse)
    tune_index(index_copy, OPTIONS)
    first, second = (index_copy / "generations" / name for name in ("000001", "000002"))
    for path in first.glob("*/*"):
        assert path.samefile(second / path.relative_to(first)) == is_shared
    assert (first / "manifest.json").read_text() != (second / "manifest.json").read_text()
    assert verify_index(index_copy).generations == [1, 2]


def test_pending_changes_go_along(index_copy: Path, made_up: Callable[..., ItemBatch]) -> None:
    model_id = read_model_id(index_copy / "model")
    with closing(ChangesWriter(index_copy, model_id)) as writer:
        writer.delete("images", ["photo 3"])
        writer.add("images", made_up(["new"]), "error")
    tune_index(index_copy, OPTIONS)
    assert pending_changes(index_copy)["images"] == (1, 1)
    with open_index(index_copy) as index:
        assert index.generation == 2
        collection = index.collection("images")
        assert collection.items.by_id("photo 3") is None
        added = collection.items.by_id("new")
        np.testing.assert_array_equal(
            collection.embedding(added.row), made_up(["new"]).embeddings[0]
        )
        assert collection.count == 23


def test_an_unreachable_fidelity_warns_and_stores_the_best(index_copy: Path) -> None:
    report = tune_index(
        index_copy, TuneOptions(fidelity=1.0, at=2, num_queries=20, max_candidates=2)
    )
    tuning = report.collections["images"].tuning
    assert tuning is not None
    assert tuning.candidates == 2
    assert tuning.fidelity < 1.0
    assert any(
        warning.startswith(f"images: 2 candidates keep {tuning.fidelity:.4f} of the exhaustive")
        for warning in report.warnings
    )


def test_photos_alone_need_queries_for_the_fidelity(
    tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem], tmp_path: Path
) -> None:
    build_index(tiny_checkpoint, tmp_path, images, None, BuildSettings(default_candidates=7))
    report = tune_index(tmp_path, OPTIONS)
    entry = report.collections["images"]
    assert entry.tuning is None
    assert (entry.ann.recall, entry.ann.recall_at) == (1.0, 7)
    assert "no text queries: the index has only images, so give --queries" in report.warnings[0]

    def make_queries(model: AladinModel) -> dict[str, TuneQueries]:
        words = encode_texts(model, [item.text for item in texts])
        return {"text": queries_of_encoding(words, "text")}

    # With all photos as candidates every fidelity can be had.
    all_photos = replace(OPTIONS, max_candidates=len(images))
    report = tune_index(tmp_path, all_photos, make_queries)
    tuning = report.collections["images"].tuning
    assert tuning is not None
    assert tuning.queries == 16
    assert report.warnings == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fidelity": 1.5}, "fidelity: expected more than 0 and at most 1, got 1.5"),
        ({"ann_recall": 0.0}, "ann_recall: expected more than 0"),
        ({"at": 0}, "at: expected at least 1"),
        ({"at": 50, "max_candidates": 20}, "at: expected at most max_candidates, 20, got 50"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TuneOptions(**options)


@pytest.mark.parametrize("least", [1, 7, 23])
@pytest.mark.parametrize("needed", [1, 8, 22, 24, 97, 100, 101])
def test_the_smallest_number_that_is_enough_is_found_in_few_tries(least: int, needed: int) -> None:
    tried: list[int] = []

    def enough(number: int) -> bool:
        tried.append(number)
        return number >= needed

    expected = None if needed > 100 else max(least, needed)
    assert fewest_enough(least, 100, enough) == expected
    assert least <= min(tried) <= max(tried) <= 100
    assert len(tried) < 16
