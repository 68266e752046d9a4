"""The hubness correction: biases against loops, its constants, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_network.errors import CheckpointError
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.hub_correction import (
    CORRECTION,
    CorrectionConstants,
    DirectionCorrection,
    EncodedItems,
    HubCorrection,
    NearestMean,
    load_correction,
    read_correction,
)
from aladin_network.scoring.hub_correction_fit import (
    ScoredSplit,
    corrected_ranks,
    corrected_split,
    fit_correction,
)
from aladin_network.scoring.metrics import retrieval_ranks, summarize
from aladin_network.types import Target

DIM = 6


def items(count: int, seed: int, least: int = 1) -> EncodedItems:
    """Random items of up to four tokens."""
    generator = np.random.default_rng(seed)

    def unit(rows: int) -> np.ndarray:
        values = generator.standard_normal((rows, DIM)).astype(np.float32)
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    lengths = generator.integers(least, 5, count)
    return EncodedItems(unit(count), TokenRows(unit(int(lengths.sum())), lengths))


def tokens_of(of: EncodedItems) -> list[np.ndarray]:
    return np.split(of.tokens.values, np.cumsum(of.tokens.lengths)[:-1])


def constants(**changes: DirectionCorrection) -> CorrectionConstants:
    return CorrectionConstants(model_id="0" * 64, data="data.jsonl", selection="val", **changes)


def alignment(words: np.ndarray, regions: np.ndarray) -> float:
    return sum(max((float(word @ region) for region in regions), default=0.0) for word in words)


def slow_biases(
    target: Target, of: EncodedItems, bank: EncodedItems, match: NearestMean, align: NearestMean
) -> list[list[float]]:
    """The biases as their formula is written."""
    found: list[list[float]] = []
    for embedding, tokens in zip(of.embeddings, tokens_of(of), strict=True):
        cosines = [float(embedding @ query) for query in bank.embeddings]
        scores = [
            alignment(query, tokens) / len(query)
            if target == "images"
            else alignment(tokens, query)
            for query in tokens_of(bank)
        ]
        found.append(
            [
                each.weight * sum(sorted(values)[-each.nearest :]) / each.nearest - each.centre
                for each, values in ((match, cosines), (align, scores))
            ]
        )
    return found


@pytest.mark.parametrize("target", ["images", "texts"])
def test_biases_are_those_of_loops(target: Target) -> None:
    match = NearestMean(nearest=3, weight=0.5, centre=0.1)
    align = NearestMean(nearest=2, weight=0.75, centre=-0.2)
    direction = DirectionCorrection(match=match, align=align)
    images, texts, asked = items(9, 0), items(11, 1), items(7, 2)
    correction = HubCorrection(
        constants=constants(text_to_image=direction, image_to_text=direction),
        images=images,
        texts=texts,
    )
    bank = texts if target == "images" else images
    expected = slow_biases(target, asked, bank, match, align)
    np.testing.assert_allclose(correction.biases(target, asked), expected, atol=1e-6)
    bare = TokenRows(asked.tokens.values[:0], np.zeros(7, np.int64))  # of items without tokens
    found = correction.biases(target, EncodedItems(asked.embeddings, bare))
    np.testing.assert_allclose(found[:, 0], np.array(expected)[:, 0], atol=1e-6)
    assert (found[:, 1] == 0).all()


def test_a_hub_is_corrected() -> None:
    """One photo is the nearest of every text; less its bias, every text finds its own."""
    texts = np.eye(4, dtype=np.float32)
    own, hub = 0.6 * np.eye(4, dtype=np.float32), np.full((1, 4), 0.7, dtype=np.float32)
    bank = EncodedItems(texts, TokenRows(texts, np.ones(4, dtype=np.int64)))
    photos = np.concatenate([own, hub])
    of_photos = EncodedItems(photos, TokenRows(photos, np.ones(5, dtype=np.int64)))
    split = ScoredSplit.of(of_photos, bank, torch.arange(4))
    assert summarize(retrieval_ranks(split.match, split.image_of_text)).text_to_image.r1 == 0
    direction = DirectionCorrection(
        match=NearestMean(nearest=4, weight=0.5), align=NearestMean(nearest=4, weight=0.5)
    )
    correction = HubCorrection(
        constants=constants(text_to_image=direction), images=of_photos, texts=bank
    )
    metrics = {name: summarize(each) for name, each in corrected_ranks(correction, split).items()}
    assert metrics["matching"].text_to_image.r1 == 100
    assert metrics["alignment"].text_to_image.r1 == 100
    assert metrics["fused"].text_to_image.r1 == 100


def test_the_bias_of_a_photo_counts_for_each_word() -> None:
    align = DirectionCorrection(align=NearestMean(nearest=2, weight=1.0))
    correction = HubCorrection(
        constants=constants(text_to_image=align), images=items(3, 0), texts=items(8, 1)
    )
    photos, texts = items(5, 2), items(6, 3)
    split = ScoredSplit.of(photos, texts, torch.zeros(6, dtype=torch.long))
    found = corrected_split(correction, split)
    bias = correction.biases("images", photos)[:, 1]
    expected = split.align.numpy() - bias[:, None] * texts.tokens.lengths
    np.testing.assert_allclose(found["text_to_image"].align.numpy(), expected, atol=1e-6)
    assert torch.equal(found["image_to_text"].align, split.align)
    assert torch.equal(found["text_to_image"].match, split.match)


def test_fitted_constants_never_lower_the_recalls_that_they_are_chosen_by() -> None:
    images, texts = items(30, 0), items(60, 1)
    of_photos, of_texts = items(25, 2), items(50, 3)
    split = ScoredSplit.of(of_photos, of_texts, torch.arange(25).repeat_interleave(2))
    correction = fit_correction(constants(), images, texts, split)
    for name, scores in (("matching", split.match), ("alignment", split.align)):
        plain = summarize(retrieval_ranks(scores, split.image_of_text))
        found = summarize(corrected_ranks(correction, split)[name])
        assert found.rsum >= plain.rsum
    # The mean bias of the bank's own items is nothing: scores stay near to what they were.
    for target, bank in (("images", images), ("texts", texts)):
        np.testing.assert_allclose(correction.biases(target, bank).mean(axis=0), 0, atol=1e-5)


def test_a_gain_within_one_standard_error_is_no_reason_to_correct() -> None:
    """Random scores have no hubs: whatever is best there is so by chance."""
    images, texts = items(40, 4), items(80, 5)
    of_photos, of_texts = items(60, 6), items(120, 7)
    own = torch.arange(60).repeat_interleave(2)
    split = ScoredSplit.of(of_photos, of_texts, own)
    fitted = fit_correction(constants(), images, texts, split).constants.text_to_image.match
    assert fitted.weight == 0
    # One photo that every text likes is reason enough: each text is near its own photo.
    near = 0.7 * of_photos.embeddings[own.numpy()] + 0.1 * of_texts.embeddings
    hub = near.mean(axis=0)
    near += 2 * hub / np.linalg.norm(hub)
    photos = of_photos.embeddings.copy()
    photos[:20] += 1.5 * hub / np.linalg.norm(hub)
    asked = EncodedItems(near, of_texts.tokens)
    split = ScoredSplit.of(EncodedItems(photos, of_photos.tokens), asked, own)
    bank = EncodedItems(near[:80], texts.tokens)
    plain = summarize(retrieval_ranks(split.match, own)).text_to_image
    correction = fit_correction(constants(), images, bank, split)
    assert correction.constants.text_to_image.match.weight > 0
    found = summarize(corrected_ranks(correction, split)["matching"]).text_to_image
    assert found.r1 > plain.r1


def test_a_file_gives_the_same_biases(tmp_path: Path) -> None:
    direction = DirectionCorrection(match=NearestMean(nearest=2, weight=0.5))
    correction = HubCorrection(
        constants=constants(image_to_text=direction), images=items(3, 0), texts=items(4, 1)
    )
    path = tmp_path / CORRECTION
    correction.save(path)
    loaded = load_correction(path)
    assert loaded.constants == correction.constants
    some = items(5, 2)
    assert np.array_equal(loaded.biases("texts", some), correction.biases("texts", some))
    assert read_correction(tmp_path / "nowhere", "0" * 64) is None
    with pytest.raises(CheckpointError, match="of model 1"):
        read_correction(tmp_path, "1" * 64)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not a hubness correction"):
        load_correction(path)


def test_a_weight_of_zero_changes_no_bit() -> None:
    correction = HubCorrection(constants=constants(), images=items(3, 0), texts=items(4, 1))
    split = ScoredSplit.of(items(5, 2), items(6, 3), torch.zeros(6, dtype=torch.long))
    for scores in corrected_split(correction, split).values():
        assert torch.equal(scores.match, split.match)
        assert torch.equal(scores.align, split.align)
    other = replace(correction.constants.text_to_image.match, nearest=7)
    assert (other.biases(np.ones((2, 3), np.float32)) == 0).all()
