"""The quick form of the comparison of first stages."""

import json

import pytest

from benchmarks.search import first_stages


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
