"""The benchmark of stored regions, on made-up photos."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aladin_index.search.results import Box
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from benchmarks.search import kept_regions
from benchmarks.search.kept_regions import overlap
from tests.benchmarks.search.made_index import unit, write_made_index

PHOTOS, CAPTIONS, DIM = 40, 120, 16
# A grid of two by two cells, and the whole photo.
BOXES: list[Box] = [
    (0, 0, 0.5, 0.5),
    (0.5, 0, 1, 0.5),
    (0, 0.5, 0.5, 1),
    (0.5, 0.5, 1, 1),
    (0, 0, 1, 1),
]


@pytest.fixture
def made_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty photos with three captions each, which say nothing of the last three regions."""
    random = np.random.default_rng(0)
    # Not negative, so that a region without a word's values is the best of none.
    regions = np.abs(unit(random.standard_normal((PHOTOS, 5, DIM))))
    regions[:, 2:, :8], regions[:, :2, 8:] = 0, 0
    regions = unit(regions.astype(np.float64))
    words = np.repeat(regions[:, :2], 3, axis=0) + 0.05 * random.standard_normal((CAPTIONS, 2, DIM))
    words[..., 8:] = 0
    write_made_index(tmp_path, regions, unit(np.abs(words)), captions=3)
    half = DirectionFusion(weight=0.5, align_std=0.5)
    fusion = Fusion(text_to_image=half, image_to_text=half)
    checkpoint = SimpleNamespace(fusion=fusion, model=None)

    def load(folder: Path) -> SimpleNamespace:
        assert folder == tmp_path / "model"
        return checkpoint

    def boxes_of(*_: object) -> list[Box]:
        return BOXES

    monkeypatch.setattr(kept_regions, "load_checkpoint", load)
    monkeypatch.setattr(kept_regions, "region_boxes", boxes_of)
    return tmp_path


def test_stored_regions_are_measured_against_all(
    made_index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept_regions, "_REPETITIONS", 2)
    arguments = ["--index", str(made_index), "--keep", "2", "--tokens", "float16", "int8"]
    kept_regions.main([*arguments, "--json"])
    lines = json.loads(capsys.readouterr().out)
    names = [f"2 {how}, {form}" for how in ("needed", "ward") for form in ("float16", "int8")]
    assert list(lines) == ["all, float16", "all, int8", *names]
    whole, needed, ward = (lines[name] for name in ("all, float16", names[0], names[2]))
    assert whole["photo_bytes"] == 5 * DIM * 2 and needed["photo_bytes"] == 2 * DIM * 2
    for figure in ("t2i_fidelity", "i2t_fidelity", "same_region", "evidence_iou"):
        assert whole[figure] == 1
    assert whole["t2i_r1"] == needed["t2i_r1"] == 100
    # Captions of other photos show that the last regions are not needed.
    assert needed["same_region"] == needed["t2i_fidelity"] == 1 > ward["same_region"]
    kept_regions.main(arguments)
    assert capsys.readouterr().out.startswith("| stored | photo_bytes |")


def test_the_other_half_chooses_and_no_asked_caption(made_index: Path) -> None:
    task, right = kept_regions.read_task(made_index)
    assert right.shape == (PHOTOS, PHOTOS) and right.diagonal().all()
    # Two captions of each photo of a half, of two words each.
    assert [len(texts.embeddings) for texts in task.others] == [PHOTOS, PHOTOS]
    folder = made_index / "generations" / "000001" / "texts"
    words = np.load(folder / "tokens.npy").reshape(CAPTIONS, 2, DIM).astype(np.float32)
    assert task.others[1].words.reshape(-1, 2, DIM)[:3].tolist() == words[[4, 5, 10]].tolist()
    assert task.captions.tokens.reshape(-1, 2, DIM)[1].tolist() == words[3].tolist()


def test_boxes_overlap_by_their_areas() -> None:
    first = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 1, 1]], dtype=np.float32)
    second = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 0.5, 1]], dtype=np.float32)
    assert overlap(first, second).tolist() == [1, 0, 0.5]
