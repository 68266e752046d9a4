"""``aladin evaluate --trec``: runs and qrels from which other tools compute the same recalls."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_index.build.builder import build_index
from aladin_service.cli import app
from aladin_service.item_sources import image_items, text_items
from aladin_training.data import read_records

DIRECTIONS = ("text_to_image", "image_to_text")
SYSTEMS = ("matching", "alignment", "fused", "two_stage")


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["evaluate", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty photos, one without a caption and two equal ones, whose scores are ties."""
    folder = tmp_path_factory.mktemp("many")
    lines: list[str] = []
    for number in range(30):
        pixels = np.random.default_rng(max(number, 1)).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((40, 40)).save(folder / f"{number}.png")
        words = ["red", "blue", "square", "star", "grass", "street"]
        captions = [f"a {words[number % 6]} {words[n]} number" for n in range(number % 4)]
        line = {"image": f"{number}.png", "captions": captions, "id": f"photo {number}%"}
        lines.append(json.dumps(line))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder / "data.jsonl"


@pytest.fixture(scope="module")
def evaluated(
    tiny_checkpoint: Path, many: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """The JSON of an evaluation, and the folder of its TREC files."""
    folder = tmp_path_factory.mktemp("trec")
    index = folder / "index"
    build_index(tiny_checkpoint, index, image_items(many, None), text_items(many, None))
    words = (tiny_checkpoint, many, "--split", "all", "--index", index, "--json")
    result = run(*words, "--trec", folder / "files", "--trec-depth", 25)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), folder / "files"


def read(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]


def test_the_files_and_their_columns(evaluated: tuple[dict[str, Any], Path], many: Path) -> None:
    _, folder = evaluated
    names = {f"{way}.{name}.run" for way in DIRECTIONS for name in SYSTEMS}
    assert {file.name for file in folder.iterdir()} == names | {
        f"{way}.qrels" for way in DIRECTIONS
    }
    records = read_records(many, require_captions=False)
    pairs = {(text, each.id) for each in records for text in each.caption_ids}
    found = {(unquote(a), unquote(b)) for a, _, b, _ in read(folder / "text_to_image.qrels")}
    assert found == pairs
    found = {(unquote(b), unquote(a)) for a, _, b, _ in read(folder / "image_to_text.qrels")}
    assert found == pairs
    lines = read(folder / "image_to_text.fused.run")
    assert {line[1] for line in lines} == {"Q0"} and {line[5] for line in lines} == {"fused"}
    captioned = sum(bool(record.captions) for record in records)
    assert [int(line[3]) for line in lines] == list(range(1, 26)) * captioned


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_recalls_counted_in_the_files(
    evaluated: tuple[dict[str, Any], Path], direction: str, system: str
) -> None:
    figures, folder = evaluated
    right: dict[str, set[str]] = defaultdict(set)
    for query, _, document, _ in read(folder / f"{direction}.qrels"):
        right[query].add(document)
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for query, _, document, _, score, _ in read(folder / f"{direction}.{system}.run"):
        found[query].append((float(np.float32(score)), document))

    assert found.keys() == right.keys()
    for each in found.values():
        assert len({score for score, _ in each}) == len(each)  # no ties are left to the tool
        each.sort(reverse=True)
    for k in (1, 5, 10):
        hits = [any(id in right[query] for _, id in each[:k]) for query, each in found.items()]
        assert 100 * np.mean(hits) == pytest.approx(figures[system][direction][f"r{k}"], abs=1e-3)


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_ranx_and_ir_measures_give_the_recalls(
    evaluated: tuple[dict[str, Any], Path], direction: str
) -> None:
    import ir_measures
    import ranx

    figures, folder = evaluated
    for system in SYSTEMS:
        qrels, run = str(folder / f"{direction}.qrels"), str(folder / f"{direction}.{system}.run")
        expected = [figures[system][direction][f"r{k}"] for k in (1, 5, 10)]
        measures = [ir_measures.Success @ k for k in (1, 5, 10)]
        values = ir_measures.calc_aggregate(
            measures, ir_measures.read_trec_qrels(qrels), ir_measures.read_trec_run(run)
        )
        assert [100 * values[each] for each in measures] == pytest.approx(expected, abs=1e-3)
        judged, ranked = ranx.Qrels.from_file(qrels, kind="trec"), ranx.Run.from_file(run, "trec")
        rates = ranx.evaluate(judged, ranked, [f"hit_rate@{k}" for k in (1, 5, 10)])
        assert [100 * each for each in rates.values()] == pytest.approx(expected, abs=1e-3)


def test_options_that_cannot_be_used(tiny_checkpoint: Path, many: Path, tmp_path: Path) -> None:
    result = run(tiny_checkpoint, many, "--trec-depth", 20)
    assert result.exit_code == 2
    assert "expected also --trec" in result.stderr
    (tmp_path / "file").touch()
    result = run(tiny_checkpoint, many, "--trec", tmp_path / "file" / "below")
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr
    shutil.rmtree(tmp_path)
