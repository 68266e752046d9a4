"""Mining a file: a given progress receives every unit of work."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.types import NullProgress
from aladin_training.config.defaults import Lists
from aladin_training.data import read_records
from aladin_training.mining.miner import mine_file


class Recorder(NullProgress):
    """Counts the units of each piece of work."""

    def __init__(self) -> None:
        self.totals: list[tuple[str, int | None]] = []
        self.done: dict[str, int] = {}

    def start(self, total: int | None, unit: str) -> None:
        """Record a new piece of work."""
        self.totals.append((unit, total))

    def advance(self, count: int = 1) -> None:
        """Count units of the piece of work that was begun last."""
        unit = self.totals[-1][0]
        self.done[unit] = self.done.get(unit, 0) + count


def test_a_given_progress_receives_every_unit(tiny_checkpoint: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    for number in range(5):
        Image.new("RGB", (40, 40), (40 * number, 90, 200)).save(tmp_path / f"{number}.png")
        captions = [f"a photo of {number}", f"{number} again"]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions}))
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines), encoding="utf-8")
    progress = Recorder()
    out = tmp_path / "negatives.safetensors"
    cache = tmp_path / "cache"
    checkpoint, lists = load_checkpoint(tiny_checkpoint), Lists("matching", 4, 2)
    mine_file(checkpoint, read_records(data), out, cache=cache, lists=lists, progress=progress)
    assert out.exists()
    assert ("photos", 5) in progress.totals
    assert ("captions", 10) in progress.totals
    assert progress.totals[-1] == ("photos compared", 5)
    assert progress.done["photos compared"] == 5
    assert progress.done["captions"] % 10 == 0
