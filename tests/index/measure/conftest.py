"""Indexes in which items tie, with either kind of first stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import open_index
from aladin_index.measure.evaluate import EvaluationQueries, EvaluationText, evaluation_queries
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.scoring.fusion import DirectionFusion, Fusion

FUSION = Fusion(
    text_to_image=DirectionFusion(
        weight=0.25, align_mean=2.0, align_std=0.5, match_mean=0.1, match_std=0.2
    ),
    image_to_text=DirectionFusion(
        weight=0.75, align_mean=1.0, align_std=2.0, match_mean=0.0, match_std=0.1
    ),
)


@pytest.fixture(scope="session", params=["exact", "IVF4,Flat"])
def tied(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> Iterator[TwoStageSearcher]:
    """Searches 27 images and 20 texts; four of each are copies of others under other ids.

    The inverted lists are searched so narrowly that what is found depends on how much is asked.
    """
    folder = tmp_path_factory.mktemp("tied")
    save_checkpoint(folder / "checkpoint", load_checkpoint(tiny_checkpoint).model, FUSION)
    copied_images = [replace(image, id=f"{image.id} again") for image in images[:4]]
    copied_texts = [
        replace(text, id=f"{text.id} again", image_id=f"photo {place + 8}")
        for place, text in enumerate(texts[:4])
    ]
    settings = BuildSettings(ann=request.param, ann_recall=0.01, default_candidates=6)
    build_index(
        folder / "checkpoint",
        folder / "index",
        [*images, *copied_images],
        [*texts, *copied_texts],
        settings,
    )
    with open_index(folder / "index") as index:
        yield TwoStageSearcher(index)


@pytest.fixture(scope="session")
def tied_queries(
    tied: TwoStageSearcher, images: list[ImageItem], texts: list[TextItem]
) -> EvaluationQueries:
    """What all twenty texts and the twelve images that have one ask."""
    captions = [EvaluationText(text.id, text.text, text.image_id or "") for text in texts]
    captions += [
        EvaluationText(f"{text.id} again", text.text, f"photo {place + 8}")
        for place, text in enumerate(texts[:4])
    ]
    return evaluation_queries(tied, [image.id for image in images], captions)
