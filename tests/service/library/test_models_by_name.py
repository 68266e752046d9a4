"""A model by name in the commands and in Python, and searches without a trained alignment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

import aladin_search
from aladin_network import errors
from aladin_service.library.places import with_start_folder
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.stages.preparation import load_start
from tests.service.commands.conftest import aladin
from tests.service.conftest import make_photo

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        make_photo(number).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def models_dir(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models out of the user's cache."""
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(models))


@pytest.fixture(scope="module")
def index(
    clip_folder: Path, photos: Path, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index built by the command line with a folder of transformers for a model."""
    out = tmp_path_factory.mktemp("index") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALADIN_MODELS_DIR", str(models))
        built = aladin("index", "build", "--model", clip_folder, "--images", photos, "--out", out)
    assert built.stdout == f"{out}: generation 1, 4 images\n"
    return out


def test_the_second_build_finds_the_converted_model(
    index: Path, clip_folder: Path, photos: Path, models: Path, tmp_path: Path
) -> None:
    [converted] = [each for each in models.iterdir() if each.is_dir()]
    written = (converted / "config.json").stat().st_mtime_ns
    with aladin_search.build(photos, model=clip_folder, out=tmp_path / "again") as again:
        assert not again.alignment_trained
        theirs = [hit.id for hit in again.search("a red circle", k=4)]
    assert (converted / "config.json").stat().st_mtime_ns == written
    with aladin_search.open(index) as opened:
        assert [hit.id for hit in opened.search("a red circle", k=4)] == theirs


def test_searches_say_once_that_the_alignment_was_not_trained_and_draw_no_evidence(
    index: Path, tmp_path: Path
) -> None:
    found = aladin("search", index, "a red circle", "--json")
    answer = json.loads(found.stdout)
    assert (answer["reranked"], answer["fusion"], answer["degraded"]) == (False, None, [])
    assert [hit["stages"]["align"] for hit in answer["hits"]] == [None] * 4
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == [hit["stages"]["match"]["score"] for hit in answer["hits"]]
    [line] = found.stderr.splitlines()
    assert "was not trained" in line
    info = json.loads(aladin("index", "info", index, "--json").stdout)
    assert info["alignment_trained"] is False
    words = ["search", index, "a red circle", "--explain"]
    explained = aladin(*words)
    assert explained.stdout.splitlines()[-1].startswith("--explain was not applied")
    drawn = aladin(
        "search", index, "a red circle", "--explain", "--out", tmp_path / "why.png", code=2
    )
    assert "was not trained, so there is no evidence to draw" in drawn.stderr
    assert not (tmp_path / "why.png").exists()

    # Nothing is stored that a second stage could compare, also where one is asked for.
    assert info["images"]["token_count"] == 0
    found = aladin("search", index, "a red circle", "--fusion", 1, "--json")
    answer = json.loads(found.stdout)
    assert (answer["reranked"], answer["fusion"], answer["degraded"]) == (False, None, ["rerank"])
    assert found.stderr.splitlines() == [line]


@pytest.mark.anyio
async def test_the_service_says_so_and_has_no_evidence(index: Path, service: Service) -> None:
    async with service(index) as client:
        assert (await client.get("/v1/index")).json()["alignment_trained"] is False
        asked = {"text": "a red circle", "explain": True}
        answer = (await client.post("/v1/search/images", json=asked)).json()
        assert (answer["degraded"], answer["reranked"]) == (["explain"], False)
        assert [hit["evidence"] for hit in answer["hits"]] == [None] * 4
        pair = {"text": "a red circle", "id": answer["hits"][0]["id"]}
        for path in ("/v1/explain", "/v1/explain.png"):
            refused = await client.get(path, params=pair)
            assert refused.status_code == 422
            message = refused.json()["error"]["message"]
            assert "the alignment of this index's model was not trained" in message


def recipe_file(folder: Path, start: str, split: str) -> Path:
    """The recipe of the README's training command, with data of one split."""
    data = folder / "data.jsonl"
    lines: list[str] = []
    for number in range(2):
        make_photo(number).save(folder / f"{number}.png")
        line = {"image": f"{number}.png", "captions": ["a red circle"], "split": split}
        lines.append(json.dumps(line))
    data.write_text("\n".join(lines), encoding="utf-8")
    file = folder / "recipe.toml"
    file.write_text(
        f'extends = "{recipes_folder() / "finetune-clip.toml"}"\nstart = "{start}"\n'
        f'data = {{ source = "{data}", validation_split = "{split}", train_split = "{split}" }}\n',
        encoding="utf-8",
    )
    return file


def test_a_recipe_starts_from_a_model_by_name(
    clip_folder: Path, models: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_file(tmp_path, str(clip_folder), "train"))
    start = with_start_folder(recipe).start
    assert start is not None
    assert Path(start.checkpoint).parent == models
    assert start.frozen == {"image_encoder": True, "text_encoder": True}
    assert load_start(start).config.image_encoder.pooled


@pytest.mark.parametrize(
    ("split", "missing", "message"),
    [
        ("train", "data.validation_split=val", "has no split 'val', known are ['train']"),
        ("val", "data.train_split=train", "has no split 'train', known are ['val']"),
        (
            "train",
            "peft",
            f"needs the package peft: {sys.executable} -m pip install 'aladin-search[train]'",
        ),
    ],
)
def test_data_and_packages_are_checked_before_a_model_is_downloaded(
    split: str, missing: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*words: object) -> Path:
        raise AssertionError(f"downloaded: {words}")

    monkeypatch.setattr("aladin_service.library.places.named_model", download)
    settings: list[str] = ["--set", missing]
    if missing == "peft":
        settings = []
        monkeypatch.setattr(errors, "find_spec", lambda name: name != "peft" or None)
    file = recipe_file(tmp_path, "openai/clip-vit-base-patch32", split)
    result = aladin("train", file, "--out", tmp_path / "run", *settings, code=2)
    assert message in result.stderr
    assert not (tmp_path / "run").exists()
