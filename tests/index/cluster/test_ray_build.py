"""Builds on two real Ray nodes of this machine, one of which is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.cluster.pool import WorkerSettings
from aladin_index.cluster.ray_encoding import connected, ray_encoding
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import BUILD
from aladin_index.settings import BuildSettings
from aladin_network.types import NullProgress
from benchmarks.lib.ray_nodes import RayNodes
from tests.index.written import file_bytes

pytestmark = pytest.mark.cluster

SETTINGS = BuildSettings(shard_items=2, batch_size=2, token_dtype="4bit", readers=1)
ALADIN = Path(sys.executable).with_name("aladin")


class Watch(NullProgress):
    """Calls a function once so many workers or more are at work; holds the work up until then."""

    def __init__(self, workers: int, at_work: Callable[[], None]) -> None:
        self.notes: dict[str, float | str] = {}
        self._workers = workers
        self._at_work: Callable[[], None] | None = at_work

    def note(self, **numbers: float | str) -> None:
        self.notes |= numbers
        if self._at_work is None or "workers" not in numbers:
            return
        if float(numbers["workers"]) >= self._workers:
            at_work, self._at_work = self._at_work, None
            at_work()
        else:
            time.sleep(1)  # one worker may be up long before the other


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """Two nodes of one core each."""
    if shutil.which("ray", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("Ray is not installed: pip install 'aladin-search[ray]'")
    with RayNodes([1, 1]) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[ImageItem]:
    """Forty photos, one of them broken."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    items: list[ImageItem] = []
    for number in range(40):
        path = folder / f"{number:02d}.png"
        pixels = random.integers(0, 256, (50, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        items.append(ImageItem(id=path.stem, path=path, uri=path.name, metadata={"n": number}))
    items[5].path.write_bytes(b"broken")
    return items


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    photos: list[ImageItem],
    texts: list[TextItem],
) -> dict[str, bytes]:
    """The files of an index that one machine builds, in other shards."""
    out = tmp_path_factory.mktemp("alone") / "index"
    settings = BuildSettings(shards=1, batch_size=2, token_dtype="4bit")
    build_index(tiny_checkpoint, out, photos, texts, settings)
    return file_bytes(out)


def test_a_node_is_killed_half_way_and_the_index_is_the_same(
    tmp_path: Path,
    tiny_checkpoint: Path,
    nodes: RayNodes,
    photos: list[ImageItem],
    texts: list[TextItem],
    alone: dict[str, bytes],
) -> None:
    watch = Watch(2, lambda: nodes.kill(1))
    with (
        connected(nodes.address) as ray,
        ray_encoding(ray, tiny_checkpoint, SETTINGS, WorkerSettings()) as encoding,
    ):
        report = build_index(
            tiny_checkpoint, tmp_path, photos, texts, SETTINGS, watch, None, encoding
        )
    assert watch.notes["lost"] == 1
    assert watch.notes["workers"] == 1
    assert report.counts == {"images": 39, "texts": 16}
    assert [entry.id for entry in report.skipped] == ["05"]
    assert file_bytes(tmp_path) == alone
    nodes.add(cpus=1)


def test_a_build_that_was_cut_short_goes_on_elsewhere(
    tmp_path: Path,
    tiny_checkpoint: Path,
    nodes: RayNodes,
    photos: list[ImageItem],
    texts: list[TextItem],
    alone: dict[str, bytes],
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    watch = Watch(1, interrupt)
    with (
        connected(nodes.address) as ray,
        ray_encoding(ray, tiny_checkpoint, SETTINGS, WorkerSettings()) as encoding,
        pytest.raises(KeyboardInterrupt),
    ):
        build_index(tiny_checkpoint, tmp_path, photos, texts, SETTINGS, watch, None, encoding)
    assert 0 < len(list((tmp_path / BUILD / "images").glob("shard-*"))) < 20
    assert list(nodes.temporary.glob("aladin-*")) == []
    settings = BuildSettings(batch_size=2, token_dtype="4bit", resume=True)
    build_index(tiny_checkpoint, tmp_path, photos, texts, settings)
    assert file_bytes(tmp_path) == alone


def test_the_command_line_builds_on_the_nodes(
    tmp_path: Path, tiny_checkpoint: Path, nodes: RayNodes, photos: list[ImageItem]
) -> None:
    said: dict[str, str] = {}
    for name, where in (
        ("alone", []),
        ("node", ["--ray", nodes.address]),
        ("client", ["--ray", nodes.client_address]),
    ):
        done = subprocess.run(
            [
                *[ALADIN, "index", "build", "--model", tiny_checkpoint],
                *["--images", photos[0].path.parent, "--out", tmp_path / name],
                *["--shards", "4", "--batch-size", "4", *where],
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout.replace(f"/{name}:", "/index:")
    # Nothing of Ray's own words is among the data.
    assert said["node"] == said["client"] == said["alone"]
    assert file_bytes(tmp_path / "node") == file_bytes(tmp_path / "alone")
    assert file_bytes(tmp_path / "client") == file_bytes(tmp_path / "alone")
