"""The benchmarks of engines in their quick forms, against the real server."""

from __future__ import annotations

from pathlib import Path

from aladin_index.build.builder import build_index
from aladin_index.settings import BuildSettings
from benchmarks.engines.backends_agree import compare, engines, tag_index
from benchmarks.engines.engine_kills import kill_engine_and_replicas
from benchmarks.lib.small_collection import make_texts, save_small_network, write_photos
from tests.milvus_needed import STARTS_MILVUS

pytestmark = STARTS_MILVUS


def test_exact_engines_answer_as_the_files_do(tmp_path: Path) -> None:
    save_small_network(tmp_path / "network")
    build_index(
        tmp_path / "network",
        tmp_path / "index",
        write_photos(tmp_path / "photos", 60),
        make_texts(40),
    )
    tag_index(tmp_path / "index", tmp_path / "tagged", BuildSettings())
    with engines(["milvus-flat", "qdrant", "qdrant-edge"], tmp_path) as running:
        for name, engine in running.items():
            figures = compare(tmp_path / "tagged", engine, tmp_path / f"{name}-index", 20)
            for asked in ("text_to_image", "image_to_text"):
                for filtered in ("", "_filtered"):
                    found = figures[asked + filtered]
                    assert found["queries"] == 20
                    assert (found["identical"], found["top10"]) == (1, 1), (name, asked, found)


def test_kills_of_the_engine_and_of_a_replica_lose_nothing() -> None:
    figures = kill_engine_and_replicas(kills=2, replicas=2)
    assert figures["correct"] > 0
    assert figures["acknowledged"] > 0
    faults = ("wrong", "failed", "lost", "not_recovered")
    found = {name: figures[name] for name in faults}
    assert found == dict.fromkeys(faults, 0), figures["unexpected"]
