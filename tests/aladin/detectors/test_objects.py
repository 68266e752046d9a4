"""Detectors of the DETR family: their boxes, classes and states become regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForObjectDetection

from aladin_network.detectors.base import detect_all, load_detector
from aladin_network.encoders.transformers_model import quiet
from aladin_network.errors import CheckpointError, ConfigError, InputError

WIDTH, QUERIES = 8, 6


def photo(seed: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size)


@pytest.mark.parametrize("family", ["detr", "conditional_detr", "yolos"])
def test_regions_are_the_most_probable_objects(
    detector_folders: dict[str, Path], family: str
) -> None:
    """Against the network's own outputs, object by object."""
    detector = load_detector(f"{detector_folders[family]},min_regions=2,max_regions=4,threshold=0")
    regions = detector.detect(photo(1))
    with quiet():
        model = AutoModelForObjectDetection.from_pretrained(detector_folders[family]).eval()
    inputs = detector._preprocess(photo(1)).unsqueeze(0)  # type: ignore[attr-defined]
    with torch.inference_mode():
        output = model(pixel_values=inputs)
    logits = output.logits[0]
    # DETR and YOLOS have a class for no object; Conditional DETR judges each class by itself.
    judged = logits.sigmoid() if family == "conditional_detr" else logits.softmax(1)[:, :-1]
    assert judged.shape == (QUERIES, 3)
    best = sorted(range(QUERIES), key=lambda place: -float(judged[place].max()))[:4]
    assert regions.labels == tuple(f"LABEL_{int(judged[place].argmax())}" for place in best)
    assert regions.boxes is not None
    for row, place in enumerate(best):
        x, y, width, height = output.pred_boxes[0, place].tolist()
        corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        box = [min(max(corner, 0.0), 1.0) for corner in corners]
        state = output.last_hidden_state[0, -QUERIES + place].tolist()
        expected = [*state, *box, box[2] - box[0], box[3] - box[1]]
        np.testing.assert_allclose(regions.vectors[row], expected, atol=1e-5)
        np.testing.assert_allclose(regions.boxes[row], box, atol=1e-6)
    assert (regions.dim, detector.dim) == (WIDTH + 6, WIDTH + 6)
    assert (regions.size_px, regions.detector) == ((60, 40), detector.id)


def test_the_options_bound_the_number_of_regions(detector_folders: dict[str, Path]) -> None:
    folder = detector_folders["detr"]
    for options, count in (("threshold=1,min_regions=2", 2), ("threshold=0,max_regions=100", 6)):
        assert len(load_detector(f"{folder},{options}").detect(photo(2))) == count
    # Photos together are as alone.
    detector = load_detector(str(folder))
    photos = [photo(1), photo(2, (40, 60)), photo(3)]
    for each, together in zip(photos, detect_all(detector, photos), strict=True):
        alone = detector.detect(each)
        np.testing.assert_allclose(alone.vectors, together.vectors, atol=1e-4)
        assert alone.labels == together.labels


def test_the_id_tells_what_the_vectors_depend_on(
    detector_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = detector_folders["detr"]
    same = tmp_path / "elsewhere"
    same.mkdir()
    for file in folder.iterdir():
        (same / file.name).write_bytes(file.read_bytes())
    first = load_detector(str(folder)).id
    assert load_detector(f"objects={same}").id == first
    assert load_detector(f"{folder},threshold=0.5").id != first
    assert load_detector(str(detector_folders["conditional_detr"])).id != first
    assert first.startswith("objects:detr:")


def test_impossible_options_models_and_photos_are_refused(
    detector_folders: dict[str, Path],
) -> None:
    folder = detector_folders["detr"]
    with pytest.raises(ConfigError, match="min_regions of at most max_regions, got 9 and 2"):
        load_detector(f"{folder},min_regions=9,max_regions=2")
    with pytest.raises(CheckpointError, match="cannot load a detector"):
        load_detector(str(detector_folders["classifier"]))
    with pytest.raises(InputError, match="takes no photo of 3000 x 1 px"):
        load_detector(str(folder)).detect(Image.new("RGB", (3000, 1)))
