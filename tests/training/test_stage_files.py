"""The log of a stage, and the picture of its curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from aladin_training.stage_files import StageLog, read_curves
from tests.training.conftest import DRAW_CURVES


@pytest.mark.parametrize("resume_step", [0, 20])
def test_a_resumed_log_drops_what_is_written_again_and_draws_the_rest(
    resume_step: int, tmp_path: Path
) -> None:
    log = StageLog(tmp_path, "joint", 0)
    log.write(20, {"loss": 2.0, "lr": 0.1})
    log.write(40, {"loss": 1.0, "matching_rsum": 240.0})
    log.close()
    again = StageLog(tmp_path, "joint", resume_step)
    kept = {20: 2.0} if resume_step else {}
    assert read_curves(tmp_path).get("loss", {}) == kept
    again.write(40, {"loss": 1.5, "matching_rsum": 250.0})
    assert read_curves(tmp_path)["loss"] == kept | {40: 1.5}
    DRAW_CURVES(again)
    again.close()
    # Two panels side by side: the training loss and the validation rsum.
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (1200, 480)
    assert list((tmp_path / "tensorboard").iterdir())
