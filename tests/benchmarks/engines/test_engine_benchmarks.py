"""The benchmarks of Milvus in their quick forms, against the real server."""

from __future__ import annotations

from pathlib import Path

from aladin_index.build.builder import build_index
from aladin_index.format.layout import EngineLocation
from aladin_index.settings import BuildSettings
from benchmarks.engines.backends_agree import compare, tag_index
from benchmarks.engines.engine_kills import kill_engine_and_replicas
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.small_collection import make_texts, save_small_network, write_photos
from tests.milvus_needed import STARTS_MILVUS

pytestmark = STARTS_MILVUS


def test_an_exact_search_in_milvus_answers_as_the_files_do(tmp_path: Path) -> None:
    save_small_network(tmp_path / "network")
    build_index(
        tmp_path / "network",
        tmp_path / "index",
        write_photos(tmp_path / "photos", 60),
        make_texts(40),
    )
    tag_index(tmp_path / "index", tmp_path / "tagged", BuildSettings())
    with MilvusServer(tmp_path / "milvus") as server:
        location = EngineLocation(url=server.url, name="flat", index="flat")
        figures = compare(tmp_path / "tagged", location, tmp_path / "pushed", 20)
    for asked in ("text_to_image", "image_to_text"):
        for filtered in ("", "_filtered"):
            found = figures[asked + filtered]
            assert found["queries"] == 20
            assert (found["identical"], found["top10"]) == (1, 1), (asked, found)


def test_kills_of_the_engine_and_of_a_replica_lose_nothing() -> None:
    figures = kill_engine_and_replicas(kills=2, replicas=2)
    assert figures["correct"] > 0
    assert figures["acknowledged"] > 0
    faults = ("wrong", "failed", "lost", "not_recovered")
    found = {name: figures[name] for name in faults}
    assert found == dict.fromkeys(faults, 0), figures["unexpected"]
