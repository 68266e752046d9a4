from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin_index.building.builder import BuildReport, build_index
from aladin_index.cluster import worker
from aladin_index.cluster.pool import WorkerSettings
from aladin_index.cluster.ray_encoding import ray_encoding
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import BUILD, published_generations
from aladin_index.settings import BuildSettings
from aladin_network.errors import ClusterError
from aladin_network.types import NullProgress
from tests.index.written import file_bytes

SETTINGS = BuildSettings(shard_items=4, batch_size=2, ann="exact")


class Recorder(NullProgress):
    """Keeps what a build reports; interrupts it when so many items are done."""

    def __init__(self, interrupt_at: int = 10**9) -> None:
        self.done = 0
        self.notes: dict[str, float | str] = {}
        self._interrupt_at = interrupt_at

    def advance(self, count: int = 1) -> None:
        self.done += count
        if self.done >= self._interrupt_at:
            raise KeyboardInterrupt

    def note(self, **numbers: float | str) -> None:
        self.notes |= numbers


Build = Callable[..., BuildReport]


@pytest.fixture(scope="module")
def build(tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem]) -> Build:
    """Builds an index of photos, one of them missing, and texts; with a Ray or without."""
    photos = [*images[:5], ImageItem(id="gone", path=Path("/none"), uri="gone"), *images[5:]]

    def run(
        out: Path, ray: Any = None, progress: Recorder | None = None, **changes: Any
    ) -> BuildReport:
        settings = dataclasses.replace(SETTINGS, **changes)
        if ray is None:
            return build_index(tiny_checkpoint, out, photos, texts, settings, progress)
        workers = WorkerSettings()
        with ray_encoding(ray, tiny_checkpoint, settings, workers) as encoding:
            return build_index(
                tiny_checkpoint, out, photos, texts, settings, progress, None, encoding
            )

    return run


@pytest.fixture(scope="module")
def alone(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine builds."""
    out = tmp_path_factory.mktemp("alone") / "index"
    build(out)
    return out


def test_an_index_of_many_nodes_is_that_of_one_machine(
    tmp_path: Path, fake_ray: Any, build: Build, alone: Path
) -> None:
    progress = Recorder()
    report = build(tmp_path / "nodes", fake_ray, progress)
    assert file_bytes(tmp_path / "nodes") == file_bytes(alone)
    assert report.counts == {"images": 23, "texts": 16}
    assert [entry.id for entry in report.skipped] == ["gone"]
    assert len(fake_ray.encoded_by) == 6 + 4
    assert set(fake_ray.encoded_by) == {0, 1}
    assert sorted(fake_ray.killed) == [0, 1]
    assert set(report.seconds) == {"list", "start", "read", "decode", "encode", "write", "ann"}
    assert progress.notes["workers"] == 2


@pytest.mark.parametrize("first", [pytest.param("alone", marks=pytest.mark.cluster), "nodes"])
def test_a_build_goes_on_with_nodes_or_without(
    tmp_path: Path, fake_ray: Any, build: Build, alone: Path, first: str
) -> None:
    order = (None, fake_ray) if first == "alone" else (fake_ray, None)
    listed = 24 + 16  # the photos and the texts
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cut", order[0], Recorder(interrupt_at=listed + 12))
    shards = len(list((tmp_path / "cut" / BUILD / "images").glob("shard-*")))
    assert shards in (2, 3)  # the last one may be interrupted when it is told of
    progress = Recorder()
    build(tmp_path / "cut", order[1], progress, resume=True)
    assert progress.notes["resumed_after"] == 4 * shards
    assert file_bytes(tmp_path / "cut") == file_bytes(alone)


def test_a_finished_build_starts_no_worker(fake_ray: Any, build: Build, alone: Path) -> None:
    assert build(alone, fake_ray, resume=True).generation == 1
    assert fake_ray.actors == []


def test_a_node_with_other_packages_is_refused(
    tmp_path: Path, fake_ray: Any, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = worker.decisive_versions() | {"torch": "1.0"}
    monkeypatch.setattr("aladin_index.cluster.worker.decisive_versions", lambda: other)
    message = rf"node .*: expected torch {torch.__version__.partition('+')[0]}.* got 1\.0"
    with pytest.raises(ClusterError, match=message):
        build(tmp_path / "index", fake_ray)
    assert published_generations(tmp_path / "index") == []
    assert sorted(fake_ray.killed) == [0, 1]


def test_a_node_without_the_photos_is_refused_and_leaves_none_out(
    tmp_path: Path, fake_ray: Any, build: Build, alone: Path, images: list[ImageItem]
) -> None:
    photo, get = images[8].path, fake_ray.get

    def get_of_another_disk(task: int) -> Any:
        photo.rename(photo.with_suffix(".away"))
        try:
            return get(task)
        finally:
            photo.with_suffix(".away").rename(photo)

    fake_ray.get = get_of_another_disk
    with pytest.raises(ClusterError, match=rf"cannot read {photo}, which this machine can"):
        build(tmp_path / "index", fake_ray)
    assert (tmp_path / "index" / BUILD / "images" / "shard-00000").is_dir()
    assert not (tmp_path / "index" / BUILD / "images" / "shard-00002").exists()
    fake_ray.get = get
    build(tmp_path / "index", fake_ray, resume=True)  # on nodes that have them
    assert file_bytes(tmp_path / "index") == file_bytes(alone)
