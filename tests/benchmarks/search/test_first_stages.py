"""The quick form of the comparison of first stages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.lib.synthetic_sources import stand_in_source
from benchmarks.search import first_stages
from benchmarks.search.first_stage_task import held_out_task


def test_quick_prints_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    first_stages.main(["--quick", "--json", "--dims", "32", "--bank", "512"])
    figures = json.loads(capsys.readouterr().out)
    assert (figures["photos"], figures["queries"]) == (300, 20)
    lines = figures["first_stages"]
    assert list(lines) == [
        *("embedding", "learned 32", "both 32", "muvera 2560", "muvera 2560 centred"),
        *("muvera 10240", "muvera 10240 centred"),
    ]
    assert lines["muvera 2560 centred"] == {"skipped": "more than 0 photos"}
    measured = [lines[name] for name in ("embedding", "learned 32", "both 32")]
    assert [line["bytes_per_photo"] for line in measured] == [1024, 128, 1152]
    for line in measured:
        assert 10 <= line["candidates"] <= 300
        assert 10 <= line["candidates_served"] <= 300
        assert line["scan_ms"] > 0
    # Chance would need nearly all of the photos.
    assert lines["learned 32"]["candidates"] < 60
    assert lines["both 32"]["candidates_served"] <= lines["embedding"]["candidates_served"]


def test_nothing_is_fitted_to_photos_that_are_held_out(tmp_path: Path) -> None:
    whole = stand_in_source()
    count = len(whole.captions)
    source = replace(whole, ids=[f"{number}.png" for number in range(count)])
    lines = []
    for number in range(10):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
        split = "val" if number % 2 else "train"
        lines.append({"image": f"{number}.png", "captions": ["a photo"], "split": split})
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    task = held_out_task(source, tmp_path / "captions.jsonl", 1000)
    assert task.unseen is not None
    assert task.unseen.tolist() == [1, 3, 5, 7, 9]
    assert (task.count, len(task.sample)) == (count, count - 5)
    asked = {id(each) for row in task.unseen for each in source.captions[row]}
    assert {id(each) for each in task.asked} == asked
    fitted_to = {id(each) for each in task.fitted_to}
    assert not fitted_to & asked
    assert len(fitted_to) == sum(map(len, source.captions)) - len(asked)


def test_trained_heads_are_those_of_the_index_s_photos() -> None:
    with pytest.raises(SystemExit):
        first_stages.main(["--trained", "run"])
