"""``aladin convert multivector`` of a network for texts: texts are searched with texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import aladin_search
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import AladinError, InputError, NoSuchTargetError
from aladin_network.scoring.scores import alignment_scores, matching_scores
from aladin_service.cli import app
from tests.aladin.conversion.text_networks import DOCUMENTS, QUERIES, write_of_pylate
from tests.tensors import encode_documents, encode_texts

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colbert")
    write_of_pylate(folder / "source")
    result = run("convert", "multivector", folder / "source", "--out", folder / "model")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[-1] == (
        "bert: 12 numbers a token and an embedding, for texts alone: queries of up to 12 tokens, "
        "documents of up to 20"
    )
    return folder / "model"


@pytest.fixture(scope="module")
def index(model: Path) -> Iterator[aladin_search.Index]:
    texts = model.parent / "texts.jsonl"
    lines = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    texts.write_text("\n".join(json.dumps(line) for line in lines))
    with aladin_search.build(None, texts, model=model, out=model.parent / "index") as index:
        yield index


def test_both_stages_are_those_of_the_network(index: aladin_search.Index, model: Path) -> None:
    network = load_checkpoint(model).model
    documents, queries = encode_documents(network, DOCUMENTS), encode_texts(network, QUERIES)
    align, match = alignment_scores(documents, queries).T, matching_scores(documents, queries).T
    for row, query in enumerate(QUERIES):
        hits = index.search(query, k=5)
        order = align[row].argsort(descending=True).tolist()
        assert [hit.id for hit in hits] == [f"d{number}" for number in order]
        for hit, number in zip(hits, order, strict=True):
            # Tokens are stored in float16.
            assert hit.stages.align is not None
            assert hit.stages.align.score == pytest.approx(float(align[row, number]), abs=0.01)
            assert hit.stages.match.score == pytest.approx(float(match[row, number]), abs=1e-5)
    first = index.search(QUERIES[0], k=5, rerank=False)
    by_match = match[0].argsort(descending=True).tolist()
    assert [hit.id for hit in first] == [f"d{number}" for number in by_match]


def test_words_are_explained_by_words(index: aladin_search.Index) -> None:
    [hit] = index.search("a red dog", k=1, explain=True)
    assert hit.evidence is not None and hit.stages.align is not None
    assert [entry.token for entry in hit.evidence if entry.token] == ["a", "red", "dog"]
    assert sum(entry.score for entry in hit.evidence) == pytest.approx(hit.stages.align.score)
    assert all(entry.box is None for entry in hit.evidence)


def test_a_stored_text_is_compared_by_its_embedding(index: aladin_search.Index) -> None:
    hits = index.search(id="d0", k=5)
    assert "d0" not in [hit.id for hit in hits]
    assert all(hit.stages.align is None for hit in hits)
    assert index.search(id="d0", explain=True)[0].evidence is None


def test_added_texts_are_documents(model: Path, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text(json.dumps({"id": "a", "text": "a star, a star"}))
    (tmp_path / "more.jsonl").write_text(json.dumps({"id": "b", "text": DOCUMENTS[0]}))
    with aladin_search.build(
        None, tmp_path / "some.jsonl", model=model, out=tmp_path / "index"
    ) as index:
        index.add(texts=tmp_path / "more.jsonl")
    network = load_checkpoint(model).model
    documents = encode_documents(network, ["a star, a star", DOCUMENTS[0]])
    scores = alignment_scores(documents, encode_texts(network, ["a red dog"]))[:, 0]
    with aladin_search.open(tmp_path / "index") as index:
        found = {hit.id: hit.stages.align for hit in index.search("a red dog")}
    for item, score in zip(("a", "b"), scores.tolist(), strict=True):
        stage = found[item]
        assert stage is not None and stage.score == pytest.approx(score, abs=0.01)


def test_photos_are_refused_in_one_line(
    index: aladin_search.Index, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    photo = tmp_path / "photos" / "a.png"
    Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8)).save(photo)
    with pytest.raises(InputError, match="this network reads texts only, no photos"):
        index.search(image=photo)
    with pytest.raises(NoSuchTargetError, match="this index has no images, only texts"):
        index.search("a dog", target="images")
    with pytest.raises(AladinError, match="no images"):
        index.add(images=photo.parent)
    built = run(
        "index", "build", "--model", model, "--images", photo.parent, "--out", tmp_path / "x"
    )
    assert (built.exit_code, built.stderr) == (
        2,
        "error: images: this network reads texts only, it has no use for photos\n",
    )
    asked = run("search", index.path, "--image", photo)
    assert asked.exit_code == 2
    assert asked.stderr.count("\n") == 1 and "reads texts only" in asked.stderr
    drawn = tmp_path / "drawn.png"
    explained = run("search", index.path, "a dog", "--explain", "--out", drawn)
    assert explained.exit_code == 2
    assert explained.stderr.count("\n") == 1 and "no evidence to draw" in explained.stderr


def test_the_command_line_finds_texts(index: aladin_search.Index) -> None:
    found = run("search", index.path, "a red dog", "-k", "2", "--json")
    assert found.exit_code == 0, found.stderr
    hits = [hit["id"] for hit in json.loads(found.stdout)["hits"]]
    assert hits == [hit.id for hit in index.search("a red dog", k=2)]


def test_exports_say_what_the_network_reads(model: Path, tmp_path: Path) -> None:
    kind = ("export", "sentence-transformers", model, "--out", tmp_path / "library")
    refused = run(*kind)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1 and "got one for texts alone" in refused.stderr
    assert not (tmp_path / "library").exists()
    exported = run("export", "hub", model, "--out", tmp_path / "hub", "--name", "me/colbert")
    assert exported.exit_code == 0, exported.stderr
    card = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    assert "queries of up to 12 tokens and documents of up to 20" in card
    assert "--texts texts.jsonl" in card and "image" not in card


def test_data_of_photos_are_refused(model: Path, tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    line = {"image": "a.png", "captions": ["a dog"], "split": "test"}
    (tmp_path / "data.jsonl").write_text(json.dumps(line))
    result = run("evaluate", model, tmp_path / "data.jsonl")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "error: this network reads texts only: expected texts, got photos"
    )


@pytest.mark.clients
def test_the_ranking_is_that_of_the_library(index: aladin_search.Index, model: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    library = MultiVectorEncoder(str(model.parent / "source"), device="cpu")
    with torch.inference_mode():
        scores = library.similarity(
            library.encode_query(QUERIES), library.encode_document(DOCUMENTS)
        )
    for query, row in zip(QUERIES, scores, strict=True):
        order = row.argsort(descending=True).tolist()
        assert [hit.id for hit in index.search(query, k=5)] == [f"d{number}" for number in order]
