"""Searches of an index whose model has graphs, in processes that cannot import torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_service.item_sources import image_items, text_items

# Packages that take seconds and hundreds of megabytes, and that no search needs.
BLOCKED = ("torch", "transformers", "matplotlib", "sklearn", "scipy", "tensorboard", "pyarrow")

PREAMBLE = f"""
import json, sys
from pathlib import Path

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"{{name}} was imported", name=name)

sys.meta_path.insert(0, Refuse())
"""

# A client of the service, in the process of its application and its worker.
ASK = """
import asyncio
from base64 import b64encode
import httpx
from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers

settings, metrics = ServiceSettings(), Metrics()
worker = WorkerPlan(index=Path(sys.argv[1]), settings=settings).make()
app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
photo = Path(sys.argv[2]).read_bytes()

async def ask():
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        async def post(path, **sent):
            answer = await client.post(path, **sent)
            assert answer.status_code == 200, answer.text
            return answer.json()

        images, texts = "/v1/search/images", "/v1/search/texts"
        upload = {"files": {"image": ("a.png", photo)}}
        some = {"number": {"gte": 2}}
        drawn = await client.get(
            "/v1/explain.png", params={"text": "a red circle", "id": sys.argv[3]}
        )
        assert drawn.status_code == 200, drawn.text
        content = b64encode(drawn.content).decode()
        return [
            {"type": drawn.headers["content-type"], "base64": content},
            await post(images, json={"text": "a red circle", "k": 6, "explain": True}),
            await post(images, json={"text": "a red circle", "k": 6, "filter": some}),
            await post(images, json={"text": "a red circle", "candidates": "exhaustive"}),
            await post(texts, json={"id": sys.argv[3], "explain": True}),
            await post(texts, data={"k": "3"}, **upload),
        ]

print(json.dumps(asyncio.run(ask())))
"""

COMMAND = """
from aladin_service.cli import app
app(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def built(
    exported_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index whose model has graphs."""
    out = tmp_path_factory.mktemp("graphs") / "index"
    build_index(exported_checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


def run(program: str, *words: str | Path) -> Any:
    """Run a program without the packages, and return the JSON that it prints."""
    line = [sys.executable, "-c", PREAMBLE + program, *map(str, words)]
    environment = os.environ | {"ALADIN_RUNTIME": "auto"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_service_answers(built: Path, data_file: Path) -> None:
    photo = data_file.parent / "photo-0.png"
    first_id = json.loads(data_file.read_text(encoding="utf-8").splitlines()[0])["id"]
    drawing, *answers = run(ASK, built, photo, first_id)
    explained, filtered, exhaustive, by_item, by_photo = answers
    assert drawing["type"] == "image/png"
    with Image.open(BytesIO(b64decode(drawing["base64"]))) as picture:
        assert picture.width > 100
    assert len(explained["hits"]) == 6
    assert all(hit["evidence"] for hit in explained["hits"])
    assert {hit["metadata"]["number"] for hit in filtered["hits"]} == {2, 3, 4, 5}
    assert [hit["id"] for hit in exhaustive["hits"]] == [hit["id"] for hit in explained["hits"]]
    assert by_item["reranked"]
    assert all(hit["evidence"] for hit in by_item["hits"])
    # The photo of the file is the item itself.
    ids = [hit["id"] for hit in by_photo["hits"]]
    assert ids == [hit["id"] for hit in by_item["hits"]][:3]


def test_a_command_answers(built: Path, data_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "why.png"
    found = run(COMMAND, "search", built, "a red circle", "--explain", "--json")
    assert all(hit["evidence"] for hit in found["hits"])
    run(COMMAND, "search", built, "a red circle", "--explain", "--out", out, "--json")
    with Image.open(out) as picture:
        assert picture.format == "PNG"
    by_photo = run(COMMAND, "search", built, "--image", data_file.parent / "photo-0.png", "--json")
    assert by_photo["hits"]
