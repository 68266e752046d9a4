import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aladin_network.scoring.fusion import DirectionFusion, Fusion
from benchmarks.search import token_forms
from benchmarks.search.token_forms import fidelity
from tests.benchmarks.search.made_index import unit, write_made_index

PHOTOS, CAPTIONS, DIM = 30, 60, 16


@pytest.fixture
def made_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty photos with two captions each, whose words lie near the regions of their photo."""
    random = np.random.default_rng(0)
    regions = unit(random.standard_normal((PHOTOS, 5, DIM)))
    words = unit(np.repeat(regions[:, :3], 2, axis=0) + 0.1 * random.standard_normal((60, 3, DIM)))
    write_made_index(tmp_path, regions, words, captions=2)
    half = DirectionFusion(weight=0.5, align_std=0.5)
    checkpoint = SimpleNamespace(fusion=Fusion(text_to_image=half, image_to_text=half))
    monkeypatch.setattr(token_forms, "load_checkpoint", lambda _: checkpoint)
    return tmp_path


def test_every_form_is_measured_against_float16(
    made_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token_forms.main(["--index", str(made_index), "--candidates", "10", "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert list(lines) == ["float16", "int8", "4bit", "2bit"]
    assert [line["bytes_per_token"] for line in lines.values()] == [32, 20, 14, 10]
    for direction in ("t2i", "i2t"):
        assert lines["float16"][f"{direction}_score_error"] == 0
        assert lines["float16"][f"{direction}_fidelity"] == 1
        assert lines["float16"][f"{direction}_two_stage_r1"] == 100
        errors = [line[f"{direction}_score_error"] for line in lines.values()]
        assert errors == sorted(errors)
        fidelities = [line[f"{direction}_fidelity"] for line in lines.values()]
        assert 1 >= fidelities[1] > fidelities[3] > 0.5
    token_forms.main(["--index", str(made_index), "--candidates", "10"])
    assert capsys.readouterr().out.startswith("| form | bytes_per_token |")


def test_two_stages_find_only_what_is_a_candidate(made_index: Path) -> None:
    folder = made_index / "generations" / "000001"
    texts = token_forms.read_side(folder, "texts")
    right = token_forms.pairs(folder)
    assert right.sum(axis=0).tolist() == [1] * CAPTIONS
    assert right[3].nonzero()[0].tolist() == [6, 7]
    # The first caption's photo has the best alignment and the worst match.
    match = np.zeros((1, PHOTOS), dtype=np.float32)
    match[0, 0] = -1
    align = np.zeros((1, PHOTOS), dtype=np.float32)
    align[0, 0] = 9
    search = token_forms.Search("text_to_image", texts, "text", match, right.T[:1])
    assert search.two_stage_r1(align, Fusion(), PHOTOS) == 100
    assert search.two_stage_r1(align, Fusion(), PHOTOS - 1) == 0


def test_fidelity_is_the_shared_part_of_the_top_10() -> None:
    reference = -np.arange(40, dtype=np.float32)[None].repeat(2, axis=0)
    scores = reference.copy()
    scores[1, [0, 1, 2]] -= 100
    assert fidelity(scores, reference) == pytest.approx((1 + 0.7) / 2)
