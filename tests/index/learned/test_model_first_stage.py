"""The first-stage head of a model in the indexes that are built with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.build.builder import build_index
from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.exchange.exporter import export_index
from aladin_index.exchange.importer import import_index
from aladin_index.generations.compact import compact_index
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import verify_index
from aladin_index.learned.weights import Weights
from aladin_index.measure.fidelity import TuneQueries
from aladin_index.measure.fit_first_stage import fit_first_stage
from aladin_index.search.backend import SecondStageQuery
from aladin_index.settings import EXACT_ALIGN, BuildSettings
from aladin_index.upgrade.run import UpgradeSettings, upgrade_index
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_first_stage
from aladin_network.config import FirstStageHeadConfig
from aladin_network.errors import CheckpointError
from aladin_network.inference import encode_texts
from aladin_network.scoring.correction import CORRECTION
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.learned_stage import LearnedStage, fit_learned_stage
from aladin_network.scoring.token_rows import TokenRows
from tests.index.corrections import correction_of

MakeItems = Callable[..., NewItems]
DIM = 10
SMALL = BuildSettings(shard_items=5, batch_size=3)
FUSION = Fusion(text_to_image=DirectionFusion(weight=0.7, align_std=0.5, match_std=0.2))


@pytest.fixture(scope="module")
def with_head(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, made_up: MakeItems
) -> Path:
    """`tiny_checkpoint` with a head that was fitted to made-up photos and texts."""
    model = load_checkpoint(tiny_checkpoint).model
    photos = made_up([f"photo {number}" for number in range(120)])
    texts = made_up([f"text {number}" for number in range(220)], seed=1)
    rows = (TokenRows(each.tokens, each.lengths) for each in (photos, texts))
    model.add_first_stage(FirstStageHeadConfig(dim=DIM, hidden=64, bank=128))
    assert model.first_stage is not None
    model.first_stage.load(fit_learned_stage(*rows, DIM, bank=128, hidden=64))
    folder = tmp_path_factory.mktemp("head") / "checkpoint"
    save_checkpoint(folder, model, FUSION)
    return folder


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
    with_head: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> Path:
    """An index of the photos and texts, with the head; not to be changed."""
    out = tmp_path_factory.mktemp("built") / "index"
    build_index(with_head, out, images, texts, SMALL)
    return out


def head_of(folder: Path) -> LearnedStage:
    stage = read_first_stage(folder)
    assert stage is not None
    return stage


def vectors_by_hand(index: SearchIndex, stage: LearnedStage) -> np.ndarray:
    """Embedding and learned vector of each photo, weighted as in the fusion."""
    photos = index.images
    assert photos is not None
    rows = np.arange(photos.entry.count, dtype=np.int64)
    learned = stage.photo_vectors(TokenRows(*photos.tokens.read(rows)))
    return np.hstack([0.3 / 0.2 * np.asarray(photos.embeddings), 0.7 / 0.5 * learned])


def query_of(index: SearchIndex, text: str) -> tuple[np.ndarray, np.ndarray]:
    encoding = encode_texts(index.checkpoint.model, [text])
    return encoding.embedding[0], encoding.item_tokens(0)


def test_candidates_are_those_of_the_vectors_made_by_hand(built: Path, with_head: Path) -> None:
    stage = head_of(with_head)
    verify_index(built)
    with open_index(built) as index:
        learned = index.images.learned
        assert learned is not None
        assert index.texts.learned is None
        entry = index.manifest.images.learned
        assert (entry.dim, entry.queries) == (16 + DIM, 16)
        vectors = vectors_by_hand(index, stage)
        np.testing.assert_allclose(learned.vectors, vectors, rtol=1e-5, atol=1e-5)
        for text in ("two dogs run", "a man", "the yellow star is left of a white triangle"):
            embedding, words = query_of(index, text)
            of_words = stage.query_vectors(TokenRows(words, np.array([len(words)])))[0]
            scores = vectors @ np.concatenate([embedding, of_words])
            expected = np.argsort(-scores)[:6]
            second_stage = SecondStageQuery(words, "text", weight=0.7)
            ordered = index.side("images").order(embedding, 6, 6, second_stage)
            assert ordered.is_learned
            assert set(ordered.rows.tolist()) == set(expected.tolist())
        # The FAISS index is tuned with the index's own texts.
        rows = np.arange(16, dtype=np.int64)
        texts = TokenRows(*index.texts.tokens.read(rows))
        queries = np.hstack([np.asarray(index.texts.embeddings), stage.query_vectors(texts)])
        np.testing.assert_allclose(
            np.sort(learned.fitted.queries, axis=0), np.sort(queries, axis=0), rtol=1e-4, atol=1e-4
        )


def test_an_index_begun_with_one_photo_has_it_and_added_photos_join(
    with_head: Path, images: list[ImageItem], made_up: MakeItems, tmp_path: Path
) -> None:
    root = tmp_path / "index"
    build_index(with_head, root, images[:1], None, SMALL)
    new = made_up([f"new {number}" for number in range(30)], seed=2)
    checkpoint = load_checkpoint(with_head)
    with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
        writer.add("images", new, "error")
    with open_index(root) as index:
        learned, changes = index.images.learned, index.side("images").changes
        assert learned is not None
        assert learned.fitted.queries.shape == (1, 16 + DIM)
        assert np.isfinite(learned.fitted.queries).all()
        added = learned.added(changes)
    assert compact_index(root).generation == 2
    verify_index(root)
    with open_index(root) as index:
        assert index.images.learned is not None
        vectors = index.images.learned.vectors
        np.testing.assert_allclose(vectors[1:], added, atol=1e-5)
        np.testing.assert_allclose(vectors, vectors_by_hand(index, head_of(with_head)), atol=1e-5)


def test_a_fit_to_the_index_replaces_it_and_a_compaction_keeps_the_fit(
    built: Path, made_up: MakeItems, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(built, tmp_path / "index"))
    asked = made_up([f"asked {number}" for number in range(230)], seed=4)
    tokens = np.split(asked.tokens, np.cumsum(asked.lengths)[:-1])
    queries = TuneQueries("text", asked.embeddings, tokens)
    fit_first_stage(root, 6, lambda _: {"text": queries})
    checkpoint = load_checkpoint(root / "model")
    with closing(ChangesWriter(root, checkpoint.model_id)) as writer:
        writer.add("images", made_up(["late"], seed=3), "error")
    compact_index(root)
    for generation, dim in ((2, 6), (3, 6)):
        with open_index(root, generation=generation) as index:
            assert index.images.learned is not None
            assert index.images.learned.vectors.shape[1] == 16 + dim


def test_merged_and_imported_indexes_have_it(
    with_head: Path, images: list[ImageItem], built: Path, tmp_path: Path
) -> None:
    for name, part in (("a", images[:9]), ("b", images[9:])):
        build_index(with_head, tmp_path / name, part, None, SMALL)
    merge_indexes([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    export_index(built, tmp_path / "exported")
    import_index(tmp_path / "exported", with_head, tmp_path / "imported")
    with open_index(built) as whole:
        expected = whole.images.learned.vectors
        for name in ("merged", "imported"):
            with open_index(tmp_path / name) as index:
                assert index.images.learned is not None
                np.testing.assert_allclose(index.images.learned.vectors, expected, atol=1e-5)


def test_biases_of_a_hubness_correction_join_the_vectors(
    with_head: Path, images: list[ImageItem], tmp_path: Path
) -> None:
    corrected = Path(shutil.copytree(with_head, tmp_path / "corrected"))
    correction = correction_of(corrected, [item.path for item in images[:6]], 0.8)
    correction.save(corrected / CORRECTION)
    build_index(corrected, tmp_path / "index", images, None, SMALL)
    with open_index(tmp_path / "index") as index:
        photos = index.images
        weights = Weights.of(correction.constants.fusion.text_to_image, corrected=True)
        rows = np.arange(photos.entry.count, dtype=np.int64)
        learned = head_of(with_head).photo_vectors(TokenRows(*photos.tokens.read(rows)))
        assert photos.learned is not None
        np.testing.assert_allclose(
            photos.learned.vectors, weights.items(photos.embeddings, learned), atol=1e-5
        )


def test_nothing_changes_where_there_is_no_head_or_no_use_of_it(
    published: Path, with_head: Path, images: list[ImageItem], texts: list[TextItem], tmp_path: Path
) -> None:
    with open_index(published) as index:
        assert index.images.learned is None
    # All photos are candidates.
    build_index(with_head, tmp_path / "all", images, texts, replace(SMALL, ann=EXACT_ALIGN))
    build_index(with_head, tmp_path / "texts", None, texts, SMALL)
    # The order is that of the embeddings.
    loaded = load_checkpoint(with_head)
    alone = Fusion(text_to_image=DirectionFusion(weight=0.0))
    save_checkpoint(tmp_path / "alone", loaded.model, alone)
    build_index(tmp_path / "alone", tmp_path / "matching", images, texts, SMALL)
    save_checkpoint(tmp_path / "untrained", loaded.model, FUSION, alignment_trained=False)
    build_index(tmp_path / "untrained", tmp_path / "unaligned", images, texts, SMALL)
    for name in ("all", "texts", "matching", "unaligned"):
        with open_index(tmp_path / name) as index:
            assert index.images is None or index.images.learned is None, name


def test_a_head_for_other_tokens_is_refused(
    tmp_path: Path, with_head: Path, images: list[ImageItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = head_of(with_head)
    wide = replace(
        stage,
        directions=np.zeros((9, 64), np.float32),
        reduction=np.zeros((74, DIM), np.float32),
        words=np.zeros((128, 9), np.float32),
    )
    monkeypatch.setattr("aladin_index.learned.files.read_first_stage", lambda _: wide)
    with pytest.raises(CheckpointError, match="expected tokens of 8 values, got 9"):
        build_index(with_head, tmp_path / "index", images, None, SMALL)
    monkeypatch.undo()
    damaged = Path(shutil.copytree(with_head, tmp_path / "damaged"))
    (damaged / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match="cannot be read"):
        build_index(damaged, tmp_path / "other", images, None, SMALL)


def test_graphs_of_the_checkpoint_change_nothing_of_it(
    with_head: Path,
    built: Path,
    images: list[ImageItem],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"the package {package} is not installed (extra dev)")
    from aladin_network.graphs.export import export_graphs

    exported = Path(shutil.copytree(with_head, tmp_path / "exported"))
    export_graphs(exported)
    monkeypatch.setenv("ALADIN_RUNTIME", "onnxruntime")
    build_index(exported, tmp_path / "index", images, None, SMALL)
    loaded = load_checkpoint(with_head)
    with open_index(built, checkpoint=loaded) as whole, open_index(tmp_path / "index") as index:
        assert type(index.checkpoint.model).__name__ == "GraphNetwork"
        found, expected = index.images.learned.vectors, whole.images.learned.vectors
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_an_upgrade_to_the_model_takes_its_first_stage(
    published: Path, with_head: Path, made_up: MakeItems, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(published, tmp_path / "index"))
    asked = made_up([f"asked {number}" for number in range(230)], seed=4)
    tokens = np.split(asked.tokens, np.cumsum(asked.lengths)[:-1])
    fit_first_stage(root, 6, lambda _: {"text": TuneQueries("text", asked.embeddings, tokens)})
    assert upgrade_index(root, with_head, UpgradeSettings()).not_kept == []
    with open_index(root) as index:
        assert index.images.learned is not None
        vectors = vectors_by_hand(index, head_of(with_head))
        np.testing.assert_allclose(index.images.learned.vectors, vectors, atol=1e-5)
