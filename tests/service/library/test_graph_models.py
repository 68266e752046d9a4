"""Models of other projects with graphs, from the build to every way of searching: one stage."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

import aladin_search
from aladin_service.library.libraries import library_of
from aladin_service.library.places import model_folder
from tests.graph_models import GraphModel, make_graph_model
from tests.service.commands.conftest import aladin, aladin_json, write_lines
from tests.service.conftest import make_photo

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
TEXTS = ["a small red circle", "two dogs run", "ein Hund läuft"]


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models out of the user's cache, and compute graphs, as is the default."""
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")


@pytest.fixture
def model(tmp_path: Path) -> GraphModel:
    return make_graph_model(tmp_path / "siglip2", "immich-siglip2")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        make_photo(number).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def index(model: GraphModel, photos: Path, tmp_path: Path) -> Path:
    texts = write_lines(
        tmp_path / "texts.jsonl",
        *({"id": str(number), "text": text} for number, text in enumerate(TEXTS)),
    )
    out = tmp_path / "index"
    words = ["--model", model.folder, "--images", photos, "--texts", texts, "--out", out]
    aladin("index", "build", *words)
    return out


def scores(model: GraphModel, text: str, photos: Path) -> dict[str, float]:
    """Return the cosine of a text with each photo, by hand."""
    query = model.text_embedding(text)
    return {
        path.name: float(model.photo_embedding(Image.open(path).convert("RGB")) @ query)
        for path in sorted(photos.iterdir())
    }


def assert_found(found: list[dict[str, object]], expected: dict[str, float]) -> None:
    ordered = sorted(expected, key=lambda name: -expected[name])
    assert [hit["id"] for hit in found] == ordered
    given = [hit["score"] for hit in found]
    np.testing.assert_allclose(given, [expected[name] for name in ordered], atol=1e-5)


def test_an_index_has_no_tokens_and_is_searched_in_one_stage(
    index: Path, model: GraphModel, photos: Path
) -> None:
    info = aladin_json("index", "info", index)
    assert info["alignment_trained"] is False
    assert [info[each]["token_count"] for each in ("images", "texts")] == [0, 0]
    found = aladin("search", index, "A red, circle", "--json")
    answer = json.loads(found.stdout)
    assert_found(answer["hits"], scores(model, "A red, circle", photos))
    assert (answer["reranked"], answer["degraded"]) == (False, [])
    assert "without re-ranking and without evidence" in found.stderr
    texts = aladin_json("search", index, "--image", photos / "0.png", "--target", "texts")
    photo = model.photo_embedding(Image.open(photos / "0.png").convert("RGB"))
    expected = {
        str(number): float(model.text_embedding(text) @ photo) for number, text in enumerate(TEXTS)
    }
    assert_found(texts["hits"], expected)
    explained = aladin("search", index, "a dog", "--explain")
    assert explained.stdout.splitlines()[-1].startswith("--explain was not applied")


def test_photos_come_and_go_and_the_index_is_whole(
    index: Path, model: GraphModel, photos: Path
) -> None:
    make_photo(7).save(photos / "7.png")
    assert "1 added" in aladin("index", "sync", index, photos).output
    make_photo(8).save(photos.parent / "8.png")
    aladin("index", "add", index, "--images", photos.parent / "8.png")
    (photos.parent / "8.png").rename(photos / "8.png")
    expected = scores(model, "two dogs", photos)
    assert_found(aladin_json("search", index, "two dogs")["hits"], expected)
    aladin("index", "compact", index)
    aladin("index", "verify", index)
    assert_found(aladin_json("search", index, "two dogs")["hits"], expected)
    with aladin_search.open(index) as opened:
        assert not opened.alignment_trained
        assert [hit.id for hit in opened.search("two dogs")] == sorted(
            expected, key=lambda name: -expected[name]
        )


@pytest.mark.anyio
async def test_the_service_answers_and_refuses_evidence(
    index: Path, model: GraphModel, photos: Path, service: Service
) -> None:
    async with service(index) as client:
        answer = (await client.post("/v1/search/images", json={"text": "two dogs"})).json()
        assert_found(answer["hits"], scores(model, "two dogs", photos))
        assert (answer["reranked"], answer["degraded"]) == (False, [])
        pair = {"text": "a red circle", "id": "0.png"}
        refused = await client.get("/v1/explain", params=pair)
        assert refused.status_code == 422
        assert "was not trained" in refused.json()["error"]["message"]
        boxed = {"id": "0.png", "box": [0, 0, 0.5, 0.5]}
        refused = await client.post("/v1/search/images", json=boxed)
        assert refused.status_code == 422
        assert "was not trained" in refused.json()["error"]["message"]
        ranked = await client.post("/v1/rerank", json={"query": "a dog", "documents": TEXTS})
        assert ranked.status_code == 200, ranked.text
        data = base64.b64encode((photos / "1.png").read_bytes()).decode()
        again = await client.post("/v1/search/images", json={"image": data})
        assert again.json()["hits"][0]["id"] == "1.png"
        assert again.json()["hits"][0]["score"] == pytest.approx(1, abs=1e-5)


def test_torch_is_named_where_something_needs_it(index: Path, tmp_path: Path) -> None:
    refused = aladin("export", "onnx", index / "model", code=2)
    assert "has graphs alone" in refused.stderr
    copy = tmp_path / "copy"
    refused = aladin("export", "onnx", index / "model", "--out", copy, code=2)
    assert "has graphs alone" in refused.stderr and not copy.exists()


def test_models_are_listed_with_what_they_take_and_removed(
    index: Path, model: GraphModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_graph_model(tmp_path / "clip", "js-clip", ["quantized"])
    monkeypatch.chdir(tmp_path)
    (other.folder / "onnx" / "text_model_quantized.onnx_data").write_bytes(b"x" * 2_000_000)
    name = f"{other.folder}:quantized"
    taken = model_folder("clip:quantized")
    library_of([tmp_path / "photos"], "clip:quantized", tmp_path / "libraries").save()
    monkeypatch.setattr("aladin_service.library.models.hub_bytes", lambda _: 0)
    [library] = (tmp_path / "libraries").iterdir()
    own = sum(path.stat().st_size for path in taken.rglob("*") if path.is_file()) - 2_000_000
    lines = aladin("photos", "--models").stdout.splitlines()
    assert lines[:4] == [
        name,
        f"  size    {(own + 2_000_000) / 1e6:,.1f} MB, {own / 1e6:,.1f} MB of it here alone",
        f"  library {library.name}",
        f"  folder  {taken}",
    ]
    assert lines[4] == str(model.folder)
    said = aladin("photos", "--remove-model", "clip", code=2).stderr
    assert f"got 'clip'; known: {name}, {model.folder}" in said
    assert aladin("photos", "--remove-model", name).stdout.startswith(f"{name}: removed (")
    [kept] = [path for path in (tmp_path / "models").iterdir() if path.suffix != ".lock"]
    assert aladin("photos", "--remove-model", kept.name).stdout.endswith(" MB freed)\n")
    assert "no models yet" in aladin("photos", "--models").stderr
    aladin("index", "verify", index)  # an index keeps its model
    assert aladin_json("search", index, "a dog")["hits"]
