"""Commands and the service in a process that cannot import torch: graphs compute the network."""

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
BLOCKED = ["torch", "transformers", "matplotlib", "sklearn", "scipy", "tensorboard"]
PREAMBLE = """
import json, sys
from pathlib import Path

blocked, *words = json.loads(sys.argv[1])

class Refuse:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)

sys.meta_path.insert(0, Refuse())
"""
COMMANDS = """
from typer.testing import CliRunner
from aladin_service.cli import app
done = [CliRunner().invoke(app, line) for line in words]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in done]))
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

index, file, item = words
settings, metrics = ServiceSettings(), Metrics()
worker = WorkerPlan(index=Path(index), settings=settings).make()
app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
photo = Path(file).read_bytes()

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
        asked = {"text": "a red circle", "id": item}
        drawn = await client.get("/v1/explain.png", params=asked)
        assert drawn.status_code == 200, drawn.text
        content = b64encode(drawn.content).decode()
        return [
            {"type": drawn.headers["content-type"], "base64": content},
            await post(images, json={"text": "a red circle", "k": 6, "explain": True}),
            await post(images, json={"text": "a red circle", "k": 6, "filter": some}),
            await post(images, json={"text": "a red circle", "candidates": "exhaustive"}),
            await post(texts, json={"id": item, "explain": True}),
            await post(texts, data={"k": "3"}, **upload),
        ]

print(json.dumps(asyncio.run(ask())))
"""


def run(program: str, blocked: list[str], *words: object) -> Any:
    """Run a program without the packages, and return the JSON that it prints."""
    line = [sys.executable, "-c", PREAMBLE + program, json.dumps([blocked, *words])]
    environment = os.environ | {"ALADIN_RUNTIME": "auto", "COLUMNS": "200"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def built(
    exported_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index whose model has graphs."""
    out = tmp_path_factory.mktemp("graphs") / "index"
    build_index(exported_checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


@pytest.fixture
def without_graphs(tiny_checkpoint: Path, data_file: Path, tmp_path: Path) -> Path:
    """An index whose model needs torch."""
    out = tmp_path / "plain"
    build_index(tiny_checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


def test_the_service_answers(built: Path, data_file: Path) -> None:
    words = [str(built), str(data_file.parent / "photo-0.png"), "dogs/red#1"]
    drawing, *answers = run(ASK, [*BLOCKED, "pyarrow"], *words)
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


def test_commands_build_and_search_by_graphs_and_the_rest_needs_no_network(
    exported_checkpoint: Path,
    tiny_checkpoint: Path,
    without_graphs: Path,
    data_file: Path,
    tmp_path: Path,
) -> None:
    """In the order of the list: each finds what those before it left."""
    index, photo = tmp_path / "index", data_file.parent / "photo-0.png"
    for name in ("empty", "photos"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos" / "0.png").write_bytes(photo.read_bytes())
    query, images = "a red circle", ["--images", str(tmp_path / "photos")]
    graphs, build = ["--model", str(exported_checkpoint)], ["index", "build", "--out", str(index)]
    prepare = ["prepare", "--demo", str(tmp_path / "demo"), "--photos", str(data_file)]
    keys, drawn = str(tmp_path / "keys.json"), str(tmp_path / "why.png")
    by_graphs = [
        [*build, *graphs, *images],
        ["index", "add", str(index), *images, "--on-duplicate", "replace"],
        [*prepare, *graphs, str(tmp_path / "first")],
        ["index", "export", str(index), "--out", str(tmp_path / "out")],
        ["index", "import", str(tmp_path / "out"), *graphs, "--out", str(tmp_path / "again")],
        ["search", str(index), query, "--explain", "--json"],
        ["search", str(index), query, "--explain", "--out", drawn],
        ["search", str(index), "--image", str(photo), "--json"],
        ["index", "tune", str(index), "--queries", str(data_file), "--num-queries", "3"],
    ]
    plain, checkpoint_and_data = str(without_graphs), [str(exported_checkpoint), str(data_file)]
    without_a_network = [
        *(["index", command, plain] for command in ("info", "verify")),
        ["index", "delete", plain, "--target", "images", "plain"],
        *(["index", command, plain] for command in ("compact", "rollback")),
        ["index", "export", plain, "--out", str(tmp_path / "exported")],
        ["index", "merge", plain, "--out", str(tmp_path / "merged")],
        ["key", "add", "reader", "--keys", keys],
        ["key", "list", "--keys", keys],
        ["train", "--list"],
        ["photos", "--list"],
    ]
    refused = [
        ([*build, "--model", str(tiny_checkpoint), *images, "--replace"], "aladin export onnx"),
        (["search", plain, query], "has no graphs"),
        (
            [*prepare, "--model", str(tmp_path / "empty"), str(tmp_path / "second")],
            "expected photos and a model with graphs, got no model",
        ),
        (["index", "info", plain, "--plot", drawn], "--plot needs the package matplotlib: "),
        *(
            ([*command, *checkpoint_and_data], "needs the package torch: ")
            for command in (["evaluate"], ["calibrate"], ["correct"], ["mine", "--out", "x"])
        ),
        (["train", "demo", "--out", str(tmp_path / "run")], "needs the package torch: "),
        (["convert", "towers", str(tmp_path), "--out", str(tmp_path / "run")], "package torch: "),
    ]
    lines = [*by_graphs, *without_a_network, *(line for line, _ in refused)]
    done = run(COMMANDS, BLOCKED, *lines)
    for line, (code, _, said) in zip(lines, done[: -len(refused)], strict=False):
        assert code == 0, (line, said)
    for (line, says), (code, _, said) in zip(refused, done[-len(refused) :], strict=True):
        assert code == 2 and says in said, (line, said)
        assert "needs the package" not in says or "-m pip install 'aladin-search[train]'" in said
    assert not (tmp_path / "run").exists()
    assert "generation 1" in done[2][1]
    explained, by_photo = (json.loads(done[place][1])["hits"] for place in (5, 7))
    assert [hit["id"] for hit in explained] == ["0.png"] and explained[0]["evidence"]
    assert by_photo
    with Image.open(drawn) as picture:
        assert picture.format == "PNG"
