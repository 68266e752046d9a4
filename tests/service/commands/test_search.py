"""``aladin search``: what it prints of an index, and of a service of it, which is the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aladin_search
from aladin_index.devices import search_device
from aladin_index.format import disk
from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration
from aladin_service.evidence.png import read_evidence
from aladin_service.work.hot_swap import LiveIndex, Opening
from tests.index.devices.fake_faiss_card import FakeCard, FakeFaiss
from tests.service.commands.conftest import aladin, aladin_json


def printed(*words: object) -> list[str]:
    return aladin("search", *words).stdout.splitlines()


def close(found: Any, expected: Any) -> bool:
    """Whether two answers agree; queries that are encoded by other threads differ in rounding."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            name == "took_ms" or close(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, abs=1e-4)
    return found == expected


def test_a_search_shows_both_stages_and_the_evidence(index_folder: Path) -> None:
    words = [index_folder, "a red dog", "-k", 3, "--explain"]
    first = aladin_json("search", *words)["hits"][0]
    lines, stages = printed(*words), first["stages"]
    assert lines[0].split() == ["rank", "score", "match", "align", "item"]
    assert lines[1].split()[:2] == ["1", f"{first['score']:.4f}"]
    shown = [f"{stages[name]['score']:.3f} #{stages[name]['rank']}" for name in ("match", "align")]
    for each in (*shown, first["id"], first["uri"], first["text"]):
        assert each in lines[1]
    # The tiny vocabulary splits words into pieces, whose scores add up.
    spans = [(0, 1), (2, 5), (6, 9)]
    assert len(first["evidence"]) > len(spans)
    for line, (start, end) in zip(lines[2:5], spans, strict=True):
        pieces = [each for each in first["evidence"] if start <= each["start"] < end]
        best = max(pieces, key=lambda piece: abs(piece["score"]))
        score = f"{sum(each['score'] for each in pieces):.3f}"
        word, region = "a red dog"[start:end], str(best["region"])
        assert line.split()[:4] == [score, word, "region", region]
        assert line.endswith("box " + " ".join(f"{each:.2f}" for each in best["box"]))
    assert len(lines) == 1 + 3 * (1 + len(spans))


@pytest.mark.parametrize(
    "line",
    [
        "'a red dog' -k 3 --explain --timeout-ms 60000",
        '--id plain --target texts --no-rerank --filter \'{"tags": "even"}\'',
        "--image PHOTO --candidates 4 --fusion 0.25",
        "'a red dog' --and 'a car' --not people --image PHOTO --explain",
        "--like plain --like ünïcode --not 'a dog' --target images",
        "'a red dog' --id plain --box 0,0.25,0.5,1 --and 'a car'",
    ],
)
def test_a_service_and_its_index_print_the_same(
    url: str, index_folder: Path, data_file: Path, line: str
) -> None:
    """Through `--url`, each kind of term once; tests/contract has the answers themselves."""
    photo = data_file.parent / "photo-2.png"
    words = [photo if word == "PHOTO" else word for word in shlex.split(line)]
    here, there = (aladin_json("search", *at, *words) for at in ([index_folder], ["--url", url]))
    assert close(there, here)
    assert list(there) == list(here)
    assert printed("--url", url, *words)[0].split()[:2] == ["rank", "score"]


def test_words_need_no_quotes(url: str, index_folder: Path) -> None:
    for where in ([index_folder], ["--url", url]):
        quoted = aladin_json("search", *where, "a red dog", "-k", 2)
        assert close(aladin_json("search", *where, "a", "-k", 2, "red", "dog"), quoted)


def test_paths_are_those_of_the_photos_files(index_folder: Path, data_file: Path) -> None:
    words = [index_folder, "red", "dog", "-k", 3, "--target"]
    ids = [hit["id"] for hit in aladin_json("search", *words, "images")["hits"]]
    with aladin_search.open(index_folder) as index:
        files = [index.photo_file(each) for each in ids]
    expected = [str(file.path) for file in files if file is not None]
    assert len(expected) == 3 and Path(expected[0]).parent == data_file.parent
    assert printed(*words, "images", "--paths") == expected
    ended = aladin("search", *words, "images", "--paths", "-0").stdout
    assert ended == "".join(f"{each}\0" for each in expected)
    done = aladin("search", *words, "texts", "--paths")
    assert done.stdout == "" and done.stderr.count("has no file of its own") == 3


def test_a_photo_finds_texts_unless_a_target_is_given(index_folder: Path, data_file: Path) -> None:
    words = [index_folder, "--image", data_file.parent / "photo-3.png"]
    hits = aladin_json("search", *words)["hits"]
    assert all("#" in hit["id"] and hit["uri"] is None for hit in hits)
    images = aladin_json("search", *words, "--target", "images")
    assert images["hits"][0]["uri"] == "photo-3.png"


def test_probabilities_are_printed_where_they_are_reliable(
    calibrated_index: Path, index: Path, make_calibration: Callable[..., Calibration]
) -> None:
    words, likely = ["a red dog", "-k", "3"], ["--min-probability", "1"]
    heading, *lines = printed(calibrated_index, *words)
    assert heading.split() == ["rank", "score", "match", "align", "prob.", "item"]
    hits = aladin_json("search", calibrated_index, *words)["hits"]
    # Rank, score, and of both stages a score and a rank come before it.
    found = [line.split()[6] for line in lines]
    assert found == [f"{hit['probability']:.3f}" for hit in hits]
    assert printed(calibrated_index, *words, *likely)[1:] == ["nothing is likely to match"]

    plain = printed(index, *words)
    made = make_calibration(describe(index).model.id)
    store_calibration(index, replace(made, other_photos=True))
    assert printed(index, *words) == plain
    assert aladin_json("search", index, *words)["no_match"] is None
    *same, last = printed(index, *words, *likely)
    assert same == plain
    assert last.startswith("--min-probability was not applied: the index's calibration was fitted")
    assert "aladin calibrate CHECKPOINT DATA --index INDEX" in last


@pytest.mark.parametrize(
    ("filter_json", "says"),
    [
        ('{"wheels": 4}', "no item has a field 'wheels' to filter by; there are number, tags"),
        ('{"number": 99}', "nothing passes the filter"),
    ],
)
def test_one_line_says_why_nothing_passes_a_filter(
    calibrated_index: Path, index_folder: Path, url: str, filter_json: str, says: str
) -> None:
    for where in ([calibrated_index], [index_folder], ["--url", url]):
        assert printed(*where, "a red dog", "--filter", filter_json) == [says]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("'a red dog'", 1),
        ("'a red dog' -k 3 --no-rerank", 3),
        ("--id plain --target texts -k 2", 2),
        ("--image PHOTO -k 2", 2),
        ("--image PHOTO -k 2 --box 0,0.25,0.5,1", 2),
        ("--id plain -k 2 --box 0,0.25,0.5,1", 2),
    ],
)
def test_a_service_and_its_index_draw_the_same(
    url: str, index_folder: Path, data_file: Path, tmp_path: Path, line: str, count: int
) -> None:
    photo = str(data_file.parent / "photo-2.png")
    words = [photo if word == "PHOTO" else word for word in shlex.split(line)]
    words += ["--explain", "--out"]
    here, there = tmp_path / "here.png", tmp_path / "made" / "there.PNG"
    hits = aladin_json("search", index_folder, *words, here)["hits"]
    assert len(hits) == count
    assert len(aladin_json("search", "--url", url, *words, there)["hits"]) == count
    drawn = read_evidence(here.read_bytes())
    for pair, hit in zip(drawn, hits, strict=True):
        assert hit["id"] in (pair.photo_id, pair.text_id)
        assert pair.align == pytest.approx(hit["stages"]["align"]["score"], abs=1e-5)
        scores = [each.score for each in pair.evidence or pair.region_evidence or []]
        told = [each["score"] for each in hit["evidence"] or hit["region_evidence"]]
        assert scores == pytest.approx(told, abs=1e-5)
        assert sum(scores) == pytest.approx(pair.align, abs=1e-4)
    for one, other in zip(drawn, read_evidence(there.read_bytes()), strict=True):
        assert close(other.model_dump(mode="json"), one.model_dump(mode="json"))
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["here.png"]


def test_a_gpu_answers_as_the_processor_does_and_is_refused_where_there_is_none(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = "search", index_folder, "two dogs run", "--device"
    expected = aladin_json(*asked, "cpu")["hits"]
    assert aladin_json(*asked, "auto")["hits"] == expected != []
    assert "--device cuda: PyTorch finds no CUDA" in aladin(*asked, "cuda", code=2).stderr
    library = FakeFaiss()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(search_device, "find_card", lambda: FakeCard(library))
    for hit, other in zip(aladin_json(*asked, "cuda")["hits"], expected, strict=True):
        assert hit["id"] == other["id"] and hit["score"] == pytest.approx(other["score"], abs=2e-3)
    assert len(library.searches) > 1 and caplog.messages == []


def test_an_index_that_is_opened_warm_is_read_ahead(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr("aladin_index.generations.reader.read_file_ahead", read.append)
    for warm in (False, True):
        live = LiveIndex(index_folder, Opening(warm=warm))
        live.open()
        names = live.searcher().index.manifest.files if warm else ()
        assert read == [index_folder / "generations" / "000001" / name for name in names]
        live.close()
    assert {path.name for path in read} >= {"ann.faiss", "embeddings.npy", "tokens.npy"}


@pytest.mark.skipif(not hasattr(disk.os, "posix_fadvise"), reason="this system cannot be asked")
def test_files_are_read_ahead_by_the_system(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(disk.os, "posix_fadvise", lambda _, *how: asked.append(how))
    disk.read_file_ahead(index_folder / "CURRENT")
    assert asked == [(0, 0, disk.os.POSIX_FADV_WILLNEED)]
