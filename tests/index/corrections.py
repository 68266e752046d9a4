"""A hubness correction of the tiny network that changes the order of hits, and its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.generations.collection_writer import live_parts
from aladin_index.generations.reader import open_index
from aladin_index.search.file_collection import FileCollection
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.photos.decoding import read_image
from aladin_network.photos.files import PhotoFile
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.hub_correction import (
    CorrectionConstants,
    DirectionCorrection,
    EncodedItems,
    HubCorrection,
    NearestMean,
)

FUSION = DirectionFusion(weight=0.5, align_std=0.8, match_std=0.1)
QUERIES = ["two dogs", "a small red circle", "star", "the street and the green grass in a square"]


def correction_of(checkpoint: Path, photos: Sequence[Path], weight: float) -> HubCorrection:
    """A correction whose bank are some photos, and sentences."""
    model = load_for_inference(checkpoint, "cpu").model
    images = encode_photos(model, [read_image(PhotoFile(path)) for path in photos])
    texts = encode_texts(model, [*QUERIES, "a man", "a blue triangle", "a yellow motorcycle"])
    direction = DirectionCorrection(
        match=NearestMean(nearest=2, weight=weight, centre=0.1 * weight),
        align=NearestMean(nearest=3, weight=1.5 * weight, centre=-0.2 * weight),
    )
    constants = CorrectionConstants(
        model_id=read_model_id(checkpoint),
        data="data.jsonl",
        selection="selection",
        text_to_image=direction,
        image_to_text=direction,
        fusion=Fusion(text_to_image=FUSION, image_to_text=FUSION),
    )
    banks = EncodedItems.of(images), EncodedItems.of(texts)
    return HubCorrection(constants=constants, images=banks[0], texts=banks[1])


def assert_stored_alike(index: Path, expected: Path) -> None:
    """Assert that two indexes store the same vectors, biases included, and tokens of photos."""
    with open_index(index) as found, open_index(expected) as built:
        ours, theirs = (_stored_photos(each.collection("images")) for each in (found, built))
    assert ours.keys() == theirs.keys()
    for item_id, (vector, tokens) in theirs.items():
        np.testing.assert_allclose(ours[item_id][0], vector, atol=1e-5)
        np.testing.assert_allclose(ours[item_id][1], tokens, atol=1e-3)


def _stored_photos(
    live: FileCollection,
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    return {
        item.id: (np.array(vector), live.tokens(item.row))
        for part in live_parts(live)
        for item, vector in zip(part.items, part.embeddings, strict=True)
    }
