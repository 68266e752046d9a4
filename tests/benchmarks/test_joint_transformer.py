"""The joint transformer's pairs, its times beside an index's, and the figures made of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_index.settings import BuildSettings
from benchmarks.joint_transformer import (
    WAYS,
    Effort,
    JointTransformer,
    compared,
    draw,
    time_networks,
    time_searches,
    typical_words,
)
from benchmarks.lib.measuring import one_thread
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import Photos, Source, stand_in_source


def test_a_pairs_score_depends_on_its_text_and_its_photo_alone() -> None:
    torch.manual_seed(0)
    joint = JointTransformer(layers=2, width=64, region_width=8).eval()
    token_ids = torch.randint(1000, (3, 5))
    regions = torch.randn(3, 4, 8)
    with torch.inference_mode():
        scores = joint(token_ids, regions)
        assert scores.shape == (3,)
        for pair in range(3):
            lone = joint(token_ids[pair : pair + 1], regions[pair : pair + 1])
            torch.testing.assert_close(lone, scores[pair : pair + 1])
        # The second photo's last region, and the third text's last word.
        regions[1, 3] += 1
        token_ids[2, 4] += 1
        changed = (joint(token_ids, regions) - scores).abs()
    assert changed[0] == 0
    assert changed[1] > 1e-4
    assert changed[2] > 1e-4


def test_speeds_follow_from_the_times() -> None:
    figures = compared({"matching": 2.0, "alignment": 10.0, "two_stage": 3.0}, 8.0, 2000.0)
    assert figures["joint_queries_per_s"] == pytest.approx(0.5)
    assert figures["matching_queries_per_s"] == pytest.approx(100)
    assert figures["matching_over_joint"] == pytest.approx(200)
    assert figures["matching_scores_over_joint"] == pytest.approx(1000)
    assert figures["two_stage_over_joint"] == pytest.approx(2000 / 11)


def test_an_index_and_networks_are_timed_and_drawn(tmp_path: Path) -> None:
    whole = stand_in_source()
    few = Photos(whole.photos.embeddings[:80], whole.photos.tokens[:80])
    photos = SyntheticPhotos(Source(name="few", photos=few, captions=whole.captions[:80]))
    assert 8 <= typical_words(photos) <= 16
    write_synthetic_index(tmp_path / "index", photos, 120, BuildSettings())
    with one_thread():
        times = time_searches(tmp_path / "index", photos.queries(4, 120, seed=1))
        networks = time_networks(5, Effort(layers=1, width=64, passes=1, searches=4))
    assert set(times) == set(WAYS)
    assert all(value > 0 for value in (*times.values(), networks["encode_ms"], networks["pair_ms"]))
    assert networks["pair_batch"] in {1, 8, 32}
    sizes = [
        {"photos": count} | compared(times, networks["encode_ms"], count * networks["pair_ms"])
        for count in (1000, 100)
    ]
    # Ten times the photos are ten times the pairs.
    assert sizes[1]["joint_queries_per_s"] == pytest.approx(10 * sizes[0]["joint_queries_per_s"])
    draw({"layers": 1, "width": 64, "sizes": sizes}, tmp_path / "joint.png")
    assert (tmp_path / "joint.png").read_bytes().startswith(b"\x89PNG")
    assert np.isfinite(list(sizes[0].values())).all()
