"""``aladin convert multivector``: an index is built and searched with the network's own MaxSim."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import aladin_search
from aladin_service.cli import app
from tests.aladin.conversion.late_interaction import FAMILIES, load_source

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("kind", list(FAMILIES))
@torch.no_grad()
def test_an_index_is_searched_with_the_networks_own_scores(kind: str, tmp_path: Path) -> None:
    FAMILIES[kind](tmp_path / "source")
    result = run("convert", "multivector", tmp_path / "source", "--out", tmp_path / "model")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{tmp_path / 'model'}\n"
    assert result.stderr == (
        f"{kind}: 12 numbers a token and an embedding, texts of up to 512 tokens\n"
    )
    (tmp_path / "photos").mkdir()
    random = np.random.default_rng(1)
    pictures = {}
    for number in range(4):
        pixels = random.integers(0, 256, (40 + 8 * number, 60 - 8 * number, 3), dtype=np.uint8)
        pictures[f"{number}.png"] = Image.fromarray(pixels)
        pictures[f"{number}.png"].save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(json.dumps({"id": text, "text": text}) for text in ("a red dog", "the star"))
    )

    network, processor = load_source(kind, tmp_path / "source")
    words = network(**processor.process_queries(["a red dog"])).embeddings[0]
    scores = {
        name: float(
            processor.score_retrieval(
                [words], [network(**processor.process_images([picture])).embeddings[0]]
            )
        )
        for name, picture in pictures.items()
    }
    with aladin_search.build(
        tmp_path / "photos",
        tmp_path / "texts.jsonl",
        model=tmp_path / "model",
        out=tmp_path / "index",
    ) as index:
        hits = index.search("a red dog", k=4, explain=True)
        # Tokens are stored in float16.
        assert {hit.id: hit.stages.align.score for hit in hits} == pytest.approx(scores, abs=0.02)
        assert [hit.id for hit in hits] == sorted(scores, key=lambda name: -scores[name])
        evidence = hits[0].evidence
        assert "".join(entry.token for entry in evidence).replace(" ", "") == "areddog"
        assert sum(entry.score for entry in evidence) == pytest.approx(hits[0].stages.align.score)
        assert all(entry.box is not None for entry in evidence)
        found = index.search(image=pictures["0.png"], k=2)
        by_text = {hit.id: hit.stages.align.score for hit in found}
        assert by_text["a red dog"] == pytest.approx(scores["0.png"], abs=0.02)


def test_what_is_refused_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.json").write_text('{"model_type": "modernbert"}')
    result = run("convert", "multivector", tmp_path / "source", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {tmp_path / 'source'}: expected a network of type colmodernvbert, colpali, "
        "colqwen2, or a folder of a ColBERT or PyLate network for texts, got one of type "
        "'modernbert'\n"
    )


def test_a_photo_that_the_network_does_not_take_is_skipped(tmp_path: Path) -> None:
    FAMILIES["colqwen2"](tmp_path / "source")
    run("convert", "multivector", tmp_path / "source", "--out", tmp_path / "model")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 30), "red").save(tmp_path / "photos" / "a.png")
    Image.new("RGB", (900, 2), "red").save(tmp_path / "photos" / "b.png")
    words = ["--images", tmp_path / "photos", "--out", tmp_path / "index"]
    built = run("index", "build", "--model", tmp_path / "model", *words)
    assert built.exit_code == 0, built.stderr
    assert "1 images" in built.stdout
    with aladin_search.open(tmp_path / "index") as index:
        assert [hit.id for hit in index.search("a red dog")] == ["a.png"]
        assert list(index.left_out) == ["b.png"]
        assert "takes no photo of 900 x 2 pixels" in index.left_out["b.png"]
