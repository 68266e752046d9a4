"""Small indexes of random encodings, each with a slow reference that knows their searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.devices import card_tokens
from aladin_index.devices.search_device import SearchDevice
from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import open_index
from aladin_index.search import file_collection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.hub_correction import (
    CorrectionConstants,
    DirectionCorrection,
    EncodedItems,
    HubCorrection,
    NearestMean,
)
from tests.index.devices.fake_faiss_card import FakeCard, FakeFaiss
from tests.index.search.reference import POOL, Reference

MakeItems = Callable[..., ItemBatch]
PHOTOS, TEXTS = 60, 30
SETTINGS = BuildSettings(default_candidates=25)


class Known(NamedTuple):
    """An open index, and what its searches should find."""

    searcher: TwoStageSearcher
    reference: Reference


def _correction(model_id: str, made_up: MakeItems) -> HubCorrection:
    def bank(name: str) -> EncodedItems:
        new = made_up([f"{name}{place}" for place in range(8)], seed=9)
        return EncodedItems(new.embeddings, TokenRows(new.tokens, new.lengths))

    def direction(weight: float) -> DirectionCorrection:
        return DirectionCorrection(
            match=NearestMean(nearest=2, weight=weight, centre=0.1),
            align=NearestMean(nearest=3, weight=1.5 * weight, centre=-0.2),
        )

    fusion = Fusion(
        text_to_image=DirectionFusion(weight=0.5, align_mean=1.0, align_std=0.8, match_std=0.1),
        image_to_text=DirectionFusion(weight=0.25, match_mean=0.2, match_std=0.3),
    )
    constants = CorrectionConstants(
        model_id=model_id,
        data="data.jsonl",
        selection="selection",
        text_to_image=direction(0.8),
        image_to_text=direction(0.4),
        fusion=fusion,
    )
    return HubCorrection(constants=constants, images=bank("image"), texts=bank("text"))


KINDS = ["files", "changed", "corrected", "corrected and changed"]


@pytest.fixture(scope="module", params=[*KINDS, "card", "card, corrected and changed"])
def known(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Any,
    write_made_up: Callable[..., int],
    made_up: MakeItems,
    make_calibration: Callable[..., Calibration],
) -> Iterator[Known]:
    """A calibrated index of photos and texts, some of which have a rare word, with its reference.

    Hits are judged against fewer items than the photos, and bounds serve few candidates, too.
    """
    root, model_id = tmp_path_factory.mktemp("known") / "index", read_model_id(tiny_checkpoint)
    calibration, correction = make_calibration(model_id), None
    if "corrected" in request.param:
        correction = _correction(model_id, made_up)
        fitted_on = replace(calibration.fitted_on, correction=correction.constants.id)
        calibration = replace(calibration, fitted_on=fitted_on)
    places = ["Zanzibar" if n == 50 else "Quito" if n in (3, 41) else "Pisa" for n in range(PHOTOS)]
    texts = made_up([f"t{n}" for n in range(TEXTS)], n=list(range(TEXTS)), place=places[:TEXTS])
    write_made_up(
        root,
        dtype="int8" if "changed" in request.param else "float16",
        settings=SETTINGS,
        correction=correction,
        calibration=calibration,
        images=made_up([f"p{n}" for n in range(PHOTOS)], n=list(range(PHOTOS)), place=places),
        texts=texts,
    )
    device = SearchDevice(FakeCard(FakeFaiss()) if "card" in request.param else None)
    with open_index(root, device=device) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_index.search.plan.POOL", POOL)
        patch.setattr(file_collection, "LEAST_BOUNDED", 10)
        patch.setattr(card_tokens, "BLOCK_BYTES", 2**14)  # a GPU scores some items at a time
        if "changed" in request.param:
            with closing(ChangesWriter(root, model_id)) as writer:
                ids, late = ["p5", *(f"new {n}" for n in range(8))], ["Lhasa", "Pisa", "Zanzibar"]
                new = made_up(ids, seed=4, n=list(range(9)), place=3 * late)
                writer.add("images", new, "replace")
                writer.delete("images", ["p3", *(f"p{n}" for n in range(11, 40, 4))])
                writer.add("texts", made_up(["t0", "late"], seed=4, n=[1, 2]), "replace")
        searcher = TwoStageSearcher(index)
        yield Known(searcher, Reference(searcher, correction))
    device.close()


def unit_rows(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Random float32 vectors of length 1."""
    values = random.standard_normal(shape)
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)
