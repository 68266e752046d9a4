"""Exported folders in sentence-transformers itself: the same scores and vectors as the network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import CORRECTION
from aladin_network.scoring.scores import alignment_scores, matching_scores
from aladin_service.export.sentence_transformers import Kind, export_sentence_transformers
from tests.index.corrections import correction_of
from tests.tensors import encode_photos, encode_texts

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

TEXTS = [
    "two dogs run on the green grass",
    "a red circle",
    "a man rides a motorcycle in the street, and the yellow star is left of it",
]

MEAN = TowerConfig(trunk=TrunkConfig(width=16, layers=1, heads=2, feedforward=32), aggregate="mean")
NAFLEX = ImageEncoderConfig(
    name="naflex",
    architecture={
        "model_type": "siglip2_vision_model",
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "patch_size": 8,
        "num_patches": 16,
    },
    preprocessing=ImagePreprocessing(max_patches=16),
)


def photos(count: int = 5) -> list[Image.Image]:
    """Photos of different shapes, more than the network encodes at a time."""
    random = np.random.default_rng(3)
    return [
        Image.fromarray(random.integers(0, 256, (30 + 9 * i, 50 - 7 * i, 3), dtype=np.uint8))
        for i in range(count)
    ]


def load(folder: Path, kind: Kind) -> Any:
    """Load a folder as anybody does."""
    import sentence_transformers

    name = "MultiVectorEncoder" if kind == "multi-vector" else "SentenceTransformer"
    return getattr(sentence_transformers, name)(
        str(folder), device="cpu", trust_remote_code=True, local_files_only=True
    )


@pytest.fixture(params=["vit", "zero token, trimmed", "not normalised", "naflex"])
def checkpoint(
    request: pytest.FixtureRequest, build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> Path:
    """Networks whose tokens and masks differ in kind."""
    heads: dict[str, dict[str, Any]] = {
        "vit": {},
        "zero token, trimmed": {
            "alignment": AlignmentHeadConfig(dim=8, empty_fill="zero", official_trim=True)
        },
        "not normalised": {"alignment": AlignmentHeadConfig(dim=8, normalize=False)},
        "naflex": {"image_encoder": NAFLEX, "image_tower": MEAN},
    }
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, build_tiny(**heads[request.param]))
    return folder


def exported(checkpoint: Path, kind: Kind) -> Path:
    out = checkpoint.parent / kind
    export_sentence_transformers(checkpoint, out, kind)
    return out


def test_similarity_is_the_alignment(checkpoint: Path) -> None:
    network = load_checkpoint(checkpoint).model
    images, texts = encode_photos(network, photos()), encode_texts(network, TEXTS)
    model = load(exported(checkpoint, "multi-vector"), "multi-vector")
    words, regions = model.encode_query(TEXTS), model.encode_document(photos(), batch_size=3)

    for row, tokens in enumerate(words):
        torch.testing.assert_close(tokens, texts.item_tokens(row), atol=1e-6, rtol=0)
    for row, tokens in enumerate(regions):
        torch.testing.assert_close(tokens, images.item_tokens(row), atol=1e-6, rtol=0)
    expected = alignment_scores(images, texts)
    torch.testing.assert_close(model.similarity(words, regions), expected.T, atol=1e-5, rtol=0)
    pairwise = model.similarity_pairwise(words, regions[:3])
    torch.testing.assert_close(pairwise, expected[:3].diagonal(), atol=1e-5, rtol=0)
    assert model.get_embedding_dimension() == 8


def test_cosine_is_the_matching(checkpoint: Path) -> None:
    network = load_checkpoint(checkpoint).model
    images, texts = encode_photos(network, photos()), encode_texts(network, TEXTS)
    model = load(exported(checkpoint, "embedding"), "embedding")
    vectors = model.encode(photos()), model.encode(TEXTS, convert_to_tensor=True)

    np.testing.assert_allclose(vectors[0], images.embedding, atol=1e-6)
    torch.testing.assert_close(vectors[1], texts.embedding, atol=1e-6, rtol=0)
    expected = matching_scores(images, texts)
    torch.testing.assert_close(model.similarity(*vectors), expected, atol=1e-6, rtol=0)
    assert model.get_embedding_dimension() == 16
    assert model.similarity_fn_name == "cosine"


@pytest.mark.parametrize("kind", ["multi-vector", "embedding"])
def test_saving_and_loading_again(checkpoint: Path, tmp_path: Path, kind: Kind) -> None:
    first = load(exported(checkpoint, kind), kind)
    first.save_pretrained(str(tmp_path / "saved"))
    second = load(tmp_path / "saved", kind)
    for inputs in (TEXTS, photos()):
        for one, other in zip(first.encode(inputs), second.encode(inputs), strict=True):
            assert np.array_equal(np.asarray(one), np.asarray(other))
    assert second.similarity_fn_name == first.similarity_fn_name
    # What was saved is a checkpoint with the same weights, fusion and origin.
    saved, source = load_checkpoint(tmp_path / "saved"), load_checkpoint(checkpoint)
    assert saved.model_id == read_model_id(checkpoint)
    assert (saved.fusion, saved.provenance) == (source.fusion, source.provenance)


def test_the_flag_is_not_needed_by_our_own_functions(tiny_checkpoint: Path, tmp_path: Path) -> None:
    from aladin_search.integrations import sentence_transformers as ours

    folder = tmp_path / "out"
    export_sentence_transformers(tiny_checkpoint, folder, "multi-vector")
    import sentence_transformers

    with pytest.raises(ValueError, match="trust_remote_code=True"):
        sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    for source in (folder, tiny_checkpoint):
        tokens = ours.multi_vector_encoder(source).encode_query(TEXTS[0])
        torch.testing.assert_close(
            tokens, load(folder, "multi-vector").encode_query(TEXTS[0]), atol=0, rtol=0
        )
        assert ours.sentence_transformer(source).encode(photos(1)).shape == (1, 16)


def test_photos_by_path_and_texts_with_prompts(tiny_checkpoint: Path, tmp_path: Path) -> None:
    from aladin_search.integrations.sentence_transformers import sentence_transformer

    model = sentence_transformer(tiny_checkpoint, prompts={"query": "a photo of "})
    picture = photos(1)[0]
    picture.save(tmp_path / "a.png")
    by_path = model.encode(str(tmp_path / "a.png"))
    np.testing.assert_array_equal(by_path, model.encode(picture))
    np.testing.assert_array_equal(by_path, model.encode({"image": picture}))
    np.testing.assert_array_equal(by_path, model.encode(picture, prompt="a photo of "))
    np.testing.assert_array_equal(
        model.encode_query("a dog"), model.encode("a photo of a dog", prompt="")
    )
    np.testing.assert_array_equal(model.encode({"text": "a dog"}), model.encode("a dog"))


def test_long_texts_are_truncated_and_impossible_inputs_refused(tiny_checkpoint: Path) -> None:
    from aladin_network.errors import InputError
    from aladin_search.integrations.sentence_transformers import multi_vector_encoder

    model = multi_vector_encoder(tiny_checkpoint)
    assert model.max_seq_length == 32
    # The special tokens are among the 32, and are no tokens of the alignment.
    assert model.encode("dog " * 100).shape == (30, 8)
    with pytest.raises(InputError, match="empty"):
        model.encode(" ")
    with pytest.raises(InputError, match="pairs and messages"):
        model.encode([("a dog", "a cat")])
    with pytest.raises(ValueError, match="Encode each modality separately"):
        model.encode(["a dog", photos(1)[0]])


def test_a_loss_of_the_library_reaches_the_network(tiny_checkpoint: Path) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from aladin_search.integrations.sentence_transformers import sentence_transformer

    model = sentence_transformer(tiny_checkpoint).train()
    loss = MultipleNegativesRankingLoss(model)(
        [model.preprocess(TEXTS), model.preprocess(photos(3))], torch.zeros(3)
    )
    loss.backward()
    network = model[0].network
    for tower in (network.image, network.text):
        assert float(tower.trunk.projection.weight.grad.abs().max()) > 0


def test_an_alignment_that_the_library_trained_is_saved_as_trained(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    from aladin_search.integrations.sentence_transformers import multi_vector_encoder

    source, saved = tmp_path / "source", tmp_path / "saved"
    save_checkpoint(source, build_tiny(), alignment_trained=False)
    model = multi_vector_encoder(source)
    model.save_pretrained(str(saved))
    assert load_checkpoint(saved).alignment_trained is False
    with torch.no_grad():
        model[0].network.alignment.projections["text"].bias += 1
    model.save_pretrained(str(saved))
    assert load_checkpoint(saved).alignment_trained is True


def test_what_is_fitted_to_the_weights_is_saved_with_them(
    tiny_checkpoint: Path, make_calibration: Callable[..., Calibration], tmp_path: Path
) -> None:
    from aladin_search.integrations.sentence_transformers import multi_vector_encoder

    source, saved = Path(shutil.copytree(tiny_checkpoint, tmp_path / "source")), tmp_path / "saved"
    model_id = read_model_id(source)
    for number, photo in enumerate(photos()):
        photo.save(tmp_path / f"{number}.png")
    correction = correction_of(source, sorted(tmp_path.glob("*.png")), 0.8)
    correction.save(source / CORRECTION)
    calibration = make_calibration(model_id)
    fitted_on = replace(calibration.fitted_on, correction=correction.constants.id)
    write_calibration(source, replace(calibration, fitted_on=fitted_on))
    model = multi_vector_encoder(source)
    for folder in (saved, source):
        model.save_pretrained(str(folder))
        fitted = read_fitted(folder, model_id)
        assert fitted.calibration is not None
        assert fitted.correction is not None
        assert fitted.correction.constants == correction.constants
    # Other weights: what was fitted to these is dropped.
    with torch.no_grad():
        model[0].network.alignment.projections["text"].bias += 1
    model.save_pretrained(str(saved))
    assert read_fitted(saved, read_model_id(saved)) == (None, None)


def test_vectors_are_those_of_an_index(tiny_checkpoint: Path, tmp_path: Path) -> None:
    import aladin_search
    from aladin_index.open import open_backend
    from aladin_search.integrations.sentence_transformers import sentence_transformer

    (tmp_path / "photos").mkdir()
    for number, photo in enumerate(photos()):
        photo.save(tmp_path / "photos" / f"{number}.png")
    aladin_search.build(tmp_path / "photos", model=tiny_checkpoint, out=tmp_path / "INDEX").close()
    model = sentence_transformer(tiny_checkpoint)
    with open_backend(tmp_path / "INDEX") as index:
        side = index.side("images")
        for row in range(5):
            name = side.items.by_rows([row])[0].id
            vector = model.encode(str(tmp_path / "photos" / name))
            np.testing.assert_allclose(vector, side.embedding(row), atol=1e-6)
