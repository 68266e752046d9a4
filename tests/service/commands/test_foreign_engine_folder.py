"""Commands on the folder of an index whose ``engine.json`` names a folder with code in it."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams
from typer.testing import CliRunner

from aladin_index.format.layout import EngineLocation, write_location
from aladin_service.cli import app


class RunsCode:
    """Makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.file,)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that is there once the code has run."""
    return tmp_path / "the code has run"


@pytest.fixture
def folder(tmp_path: Path, index_folder: Path, ran: Path) -> Path:
    """The folder of an index in the local mode of Qdrant, of which one point is code."""
    points = tmp_path / "points"
    with closing(QdrantClient(path=str(points))) as client:
        client.create_collection("photos", VectorParams(size=2, distance=Distance.DOT))
        client.upsert("photos", [PointStruct(id=1, vector=[1.0, 0.0])])
    [storage] = points.rglob("storage.sqlite")
    with closing(sqlite3.connect(storage)) as database, database:
        database.execute("UPDATE points SET point = ?", (pickle.dumps(RunsCode(ran)),))
    index = tmp_path / "index"
    shutil.copytree(index_folder / "model", index / "model")
    write_location(index, EngineLocation(engine="qdrant", url=points.as_uri(), name="photos"))
    return index


@pytest.mark.parametrize(
    "words",
    [
        ["index", "info", "INDEX"],
        ["search", "INDEX", "a dog"],
        ["serve", "INDEX", "--port", "0"],
        ["index", "delete", "INDEX", "--target", "images", "a"],
    ],
)
def test_no_command_runs_it(folder: Path, ran: Path, words: list[str]) -> None:
    result = CliRunner().invoke(app, [str(folder) if word == "INDEX" else word for word in words])
    assert result.exit_code == 2
    assert "set ALADIN_ENGINE_URL=file:///" in " ".join(result.stderr.split())
    assert not ran.exists()


def test_it_runs_where_the_environment_names_the_folder(
    folder: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the other tests would notice it."""
    monkeypatch.setenv("ALADIN_ENGINE_URL", (folder.parent / "points").as_uri())
    CliRunner().invoke(app, ["index", "info", str(folder)])
    assert ran.exists()
