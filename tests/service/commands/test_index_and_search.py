"""``aladin index`` and ``aladin search`` on real files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app


def aladin(*words: object) -> Result:
    """Run a command line; it has to succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def built(tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index built by the command line."""
    out = tmp_path_factory.mktemp("built") / "index"
    source = ["--images", data_file, "--texts", data_file, "--split", "test"]
    result = aladin(
        *["index", "build", "--model", tiny_checkpoint, *source, "--out", out],
        *["--tokens", "int8", "--ann", "exact", "--shards", 2],
    )
    assert result.stdout == f"{out}: generation 1, 5 images, 10 texts\n"
    return out


def test_info_describes_what_was_built(built: Path) -> None:
    data = json.loads(aladin("index", "info", built, "--json").stdout)
    assert data["generation"] == 1
    assert data["images"]["count"] == 5
    assert data["texts"]["count"] == 10
    assert data["images"]["token_dtype"] == "int8"
    shown = aladin("index", "info", built).stdout
    assert data["model"]["id"] in shown
    assert "int8" in shown


def test_verify_names_a_changed_file_and_fails(built: Path, tmp_path: Path) -> None:
    assert "sound" in aladin("index", "verify", built).stdout
    changed = Path(shutil.copytree(built, tmp_path / "changed"))
    file = changed / "generations/000001/images/embeddings.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["index", "verify", str(changed)])
    assert result.exit_code == 1
    assert "embeddings.npy" in result.stderr
    assert result.stdout == ""


def test_photos_that_cannot_be_used_are_named_and_the_build_goes_on(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "good.png").write_bytes((data_file.parent / "photo-0.png").read_bytes())
    (photos / "broken.png").write_bytes(b"broken")
    result = aladin(
        *["index", "build", "--model", tiny_checkpoint, "--images", photos],
        *["--out", tmp_path / "index"],
    )
    assert result.stdout.endswith("generation 1, 1 images, 1 skipped\n")
    assert "skipped broken.png: " in result.stderr


def test_search_shows_both_stages_and_the_evidence(built: Path) -> None:
    words = ["search", built, "a red dog", "-k", 3, "--explain"]
    hits = json.loads(aladin(*words, "--json").stdout)["hits"]
    lines = aladin(*words).stdout.splitlines()
    assert lines[0].split() == ["rank", "score", "match", "align", "item"]
    first = hits[0]
    assert lines[1].split()[:2] == ["1", f"{first['score']:.4f}"]
    assert (
        f"{first['stages']['match']['score']:.3f} #{first['stages']['match']['rank']}" in lines[1]
    )
    assert (
        f"{first['stages']['align']['score']:.3f} #{first['stages']['align']['rank']}" in lines[1]
    )
    assert first["id"] in lines[1]
    assert first["uri"] in lines[1]
    assert first["text"] in lines[1]
    # The tiny vocabulary splits words into pieces, whose scores add up.
    spans = [(0, 1), (2, 5), (6, 9)]
    assert len(first["evidence"]) > len(spans)
    for line, (start, end) in zip(lines[2:5], spans, strict=True):
        pieces = [each for each in first["evidence"] if start <= each["start"] < end]
        best = max(pieces, key=lambda piece: abs(piece["score"]))
        score, word, region = (
            f"{sum(each['score'] for each in pieces):.3f}",
            "a red dog"[start:end],
            best["region"],
        )
        assert line.split()[:4] == [score, word, "region", str(region)]
        assert line.endswith("box " + " ".join(f"{each:.2f}" for each in best["box"]))
    assert len(lines) == 1 + 3 * (1 + len(spans))


def test_a_photo_finds_texts_unless_a_target_is_given(built: Path, data_file: Path) -> None:
    photo = data_file.parent / "photo-3.png"
    texts = json.loads(aladin("search", built, "--image", photo, "--json").stdout)
    assert all("#" in hit["id"] and hit["uri"] is None for hit in texts["hits"])
    images = aladin("search", built, "--image", photo, "--target", "images", "--json")
    assert json.loads(images.stdout)["hits"][0]["uri"] == "photo-3.png"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--id", "nobody"], "no item 'nobody'"),
        ([" "], "the text is empty"),
        (["dog " * 25_000], "100000 characters"),
        (["dog", "--filter", '{"number": {"about": 3}}'], "about"),
        (["--image", "DATA"], "not an image"),
    ],
)
def test_impossible_queries_are_the_users_mistake(
    built: Path, data_file: Path, words: list[str], says: str
) -> None:
    words = [str(data_file) if word == "DATA" else word for word in words]
    result = CliRunner().invoke(app, ["search", str(built), *words])
    assert result.exit_code == 2
    assert says in result.stderr
