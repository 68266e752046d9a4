"""The snippets of docs/INTEGRATIONS.md, run with the real packages, find what the routes find."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import aladin_search

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

GUIDE = Path(__file__).parents[4] / "docs" / "INTEGRATIONS.md"
TEXT = "a red dog runs"
SECTIONS = {
    title: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for title, text in re.findall(
        r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
}


class World:
    """An index, a service of it, and its own answers."""

    def __init__(self, index: Path, key: str, url: str) -> None:
        self.index, self.key, self.url = index, key, url

    def run(self, section: str) -> dict[str, Any]:
        """Run the snippets of a section one after the other; return their names."""
        names: dict[str, Any] = {"__name__": "snippet"}
        for block in SECTIONS[section]:
            block = block.replace("http://127.0.0.1:8000", self.url)
            block = re.sub(r"\bKEY\b", self.key, block).replace("snow-1", "plain")
            block = block.replace('"INDEX"', repr(str(self.index)))
            exec(compile(block, section, "exec", dont_inherit=True), names)
        return names

    def answer(self, path: str, **body: Any) -> Any:
        """Return the answer of one of the service's routes."""
        headers = {"Authorization": f"Bearer {self.key}"}
        answer = httpx.post(f"{self.url}/v1/{path}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def scores(self, **body: Any) -> list[tuple[str, float]]:
        """Return the ids and scores of the first three photos."""
        hits = self.answer("search/images", text=TEXT, k=3, **body)["hits"]
        assert len(hits) == 3
        return [(hit["id"], pytest.approx(hit["score"], abs=1e-6)) for hit in hits]


@pytest.fixture
def world(
    calibrated_index: Path, key_and_url: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setenv("ALADIN_API_KEY", key_and_url[0])
    return World(calibrated_index, *key_and_url)


def test_langchain(world: World) -> None:
    found = world.run("LangChain")["found"]
    expected = world.scores(filter={"number": {"lt": 4}})
    assert [(each.id, each.metadata["score"]) for each in found] == expected
    assert all(each.metadata["number"] < 4 and each.page_content for each in found)


def test_llama_index(world: World) -> None:
    from llama_index.core.schema import QueryBundle

    names = world.run("LlamaIndex")
    found = names["found"]
    assert [(each.node.node_id, each.score) for each in found] == world.scores()
    assert all(Path(each.node.image_path).is_file() and each.node.text for each in found)
    path = found[0].node.image_path
    with aladin_search.open(world.index) as index:
        (itself,) = names["PhotoRetriever"](index, k=1).retrieve(QueryBundle("", path))
    assert itself.node.node_id == found[0].node.node_id


def test_haystack(world: World) -> None:
    found = world.run("Haystack")["found"]
    assert [(each.id, each.score) for each in found] == world.scores()
    assert {each.blob.mime_type for each in found} == {"image/jpeg"}
    assert all(each.content and "number" in each.meta for each in found)


def test_sentence_transformers(world: World) -> None:
    names = world.run("sentence-transformers")
    found = {names["texts"][each["corpus_id"]]: each["score"] for each in names["found"]}
    inputs = [TEXT, *found]
    vectors = [each["embedding"] for each in world.answer("embeddings", input=inputs)["data"]]
    asked, *others = map(np.array, vectors)
    assert list(found.values()) == pytest.approx([float(asked @ each) for each in others], abs=1e-5)
    assert len(found) == 2


def test_embeddings(world: World, photo_folder: Path) -> None:
    assert photo_folder.is_dir()
    names = world.run("Embeddings")
    assert np.linalg.norm(names["text"]) == pytest.approx(1, abs=1e-5)
    assert names["words"].shape[1] == names["regions"].shape[1] == 8


def test_rerank(world: World, photo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert photo_folder.is_dir()
    names = world.run("Re-ranking")
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\d 0\.\d+ (?:probability|matching)$", printed, re.MULTILINE)) == 2
    assert len(names["answer"].results) == 2


def test_every_snippet_belongs_to_a_test() -> None:
    assert {title: len(blocks) for title, blocks in SECTIONS.items()} == {
        "LangChain": 1,
        "LlamaIndex": 1,
        "Haystack": 1,
        "sentence-transformers": 1,
        "Embeddings": 3,
        "Re-ranking": 2,
        "MTEB": 0,
    }
