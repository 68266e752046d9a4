"""Photos are decoded in processes as by threads, for a card that is the processor here."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.decoding_processes import decode_items, decoding
from aladin_index.encode.item_encoders import ItemEncoder, item_encoder
from aladin_index.encode.read_ahead import StageSeconds, encoded_batches
from aladin_index.encode.source_items import ImageItem, Prepared
from aladin_index.format.skipped import SkippedItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import DecodingProcessError, InputError
from aladin_network.inference import Network, Throughput
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import ImageLimits
from aladin_network.types import NullProgress

READERS = 4


def as_on_a_card(model: AladinModel) -> Throughput:
    return Throughput(model, 2, 4, model.image.encoder.pixel_reader())


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have networks taken for such on a card."""
    monkeypatch.setattr(AladinModel, "throughput", as_on_a_card)


@pytest.fixture
def model(tiny_checkpoint: Path, card: None) -> Network:  # noqa: ARG001
    return load_checkpoint(tiny_checkpoint).model


@pytest.fixture
def mixed(images: list[ImageItem], tmp_path: Path) -> list[ImageItem]:
    """Photos, one that is missing, one that is damaged and one that was uploaded."""
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(images[0].path.read_bytes()[:60])
    upload = UploadedPhoto(images[1].path.read_bytes())
    return [
        *images[:9],
        ImageItem(id="gone", path=tmp_path / "gone.png", uri="a/gone.png"),
        ImageItem(id="damaged", path=damaged, uri="a/damaged.png"),
        ImageItem(id="upload", uri="upload", upload=upload),
        *images[9:],
    ]


def encoder_of(model: Network, **settings: Any) -> ItemEncoder:
    encoder = item_encoder("images", model, EncodeSettings(readers=READERS, **settings))
    assert encoder.elsewhere is not None
    return encoder


def test_processes_decode_what_threads_do(model: Network, mixed: list[ImageItem]) -> None:
    encoder = encoder_of(model)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with decoding(encoder, READERS) as decode:
        found, seconds = decode(mixed)
        again = decode(mixed[:1]).found
        assert {process.pid for process in multiprocessing.active_children()} != set()
    assert multiprocessing.active_children() == []
    expected = decode_items(encoder, mixed).found
    assert [type(each) for each in found] == [type(each) for each in expected]
    assert [each for each in found if isinstance(each, SkippedItem)] == [
        each for each in expected if isinstance(each, SkippedItem)
    ]
    assert len([each for each in found if isinstance(each, SkippedItem)]) == 2
    for ours, theirs in zip([*found, *again], [*expected, *expected[:1]], strict=True):
        if isinstance(ours, Prepared) and isinstance(theirs, Prepared):
            np.testing.assert_array_equal(ours.value, theirs.value)
            assert ours._replace(value=None) == theirs._replace(value=None)
    assert all(spent > 0 for spent in seconds.values()) and list(seconds) == ["read", "decode"]
    del found, again
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened + 2  # of multiprocessing itself


@pytest.mark.usefixtures("card")
def test_an_index_is_the_same(
    tiny_checkpoint: Path, mixed: list[ImageItem], tmp_path: Path
) -> None:
    settings = BuildSettings(readers=READERS, batch_size=8, shards=2, ann="Flat")
    listed = [item for item in mixed if item.upload is None]
    files: list[dict[str, bytes]] = []
    for readers in (READERS, 1):
        out = tmp_path / f"index {readers}"
        report = build_index(tiny_checkpoint, out, listed, None, replace(settings, readers=readers))
        assert [item.id for item in report.skipped] == ["gone", "damaged"]
        assert {"read", "decode", "encode"} <= report.seconds.keys()
        arrays = sorted(out.rglob("*.npy"))
        files.append({str(path.relative_to(out)): path.read_bytes() for path in arrays})
    assert files[0] == files[1] and files[0]


def test_limits_are_those_of_threads(model: Network, images: list[ImageItem]) -> None:
    """A photo of too many pixels is skipped, and an item of no use ends a strict build."""
    encoder = encoder_of(model, limits=ImageLimits(max_pixels=900))
    with decoding(encoder, READERS) as decode:
        found = decode(images).found
    expected = decode_items(encoder, images).found
    skipped = [each for each in found if isinstance(each, SkippedItem)]
    assert skipped == [each for each in expected if isinstance(each, SkippedItem)]
    assert 0 < len(skipped) < len(images)
    assert all("limit 900" in each.reason for each in skipped)
    settings = EncodeSettings(readers=READERS, limits=ImageLimits(max_pixels=900), strict=True)
    with pytest.raises(InputError, match="limit 900"):
        list(encoded(encoder, [images], settings))
    assert multiprocessing.active_children() == []


def encoded(
    encoder: ItemEncoder, batches: Iterable[list[ImageItem]], settings: EncodeSettings
) -> Any:
    return encoded_batches(encoder, batches, settings, StageSeconds(), NullProgress())


@pytest.mark.usefixtures("card")
def test_a_killed_process_is_an_error_and_the_build_resumes(
    tiny_checkpoint: Path, images: list[ImageItem], tmp_path: Path
) -> None:
    settings = BuildSettings(readers=READERS, batch_size=4, shard_items=4, ann="Flat")
    many = [replace(image, id=f"{image.id}, {turn}") for turn in range(6) for image in images]
    killed: list[int] = []

    class Killing(NullProgress):
        def advance(self, count: int = 1) -> None:  # noqa: ARG002
            if not killed and list((tmp_path / "index").rglob("shard-*/rows.npy")):
                victim = multiprocessing.active_children()[0].pid
                assert victim is not None
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)
                time.sleep(0.2)

    with pytest.raises(DecodingProcessError, match="a process that decodes photos ended"):
        build_index(tiny_checkpoint, tmp_path / "index", many, None, settings, Killing())
    assert killed and multiprocessing.active_children() == []
    resumed = replace(settings, resume=True)
    report = build_index(tiny_checkpoint, tmp_path / "index", many, None, resumed)
    assert report.counts == {"images": len(many)}


def test_seconds_are_those_of_all_items_those_of_no_use_too(images: list[ImageItem]) -> None:
    class Slow:
        def read(self, item: ImageItem) -> None:
            time.sleep(0.01)
            if item is images[0]:
                raise InputError("unreadable")

        def decode(self, item: ImageItem, data: None) -> Prepared:  # noqa: ARG002
            time.sleep(0.02)
            raise InputError("of no use")

    found, seconds = decode_items(Slow(), images[:5])
    assert [each.reason for each in found if isinstance(each, SkippedItem)] == [
        "unreadable",
        *["of no use"] * 4,
    ]
    assert seconds["read"] >= 0.05 and seconds["decode"] >= 0.08


def test_a_process_that_is_gone_is_an_error(model: Network, images: list[ImageItem]) -> None:
    with decoding(encoder_of(model), 1) as decode:
        decode(images[:1])
        (only,) = multiprocessing.active_children()
        only.kill()
        only.join()
        with pytest.raises(DecodingProcessError, match="a process that decodes photos ended"):
            decode(images[:1])


_ENDLESS = """
import sys, time
from aladin_index.encode.decoding_processes import decoding

class Slow:
    elsewhere = property(lambda self: self)
    def read(self, item):
        print("reading", flush=True)
        time.sleep(600)

if __name__ == "__main__":
    with decoding(Slow(), 2) as decode:
        decode([None])
"""


def test_no_process_outlives_a_killed_build(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS, encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as build:
        assert build.stdout is not None and build.stdout.readline() == b"reading\n"
        children = psutil.Process(build.pid).children(recursive=True)
        build.kill()
    assert children
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


@pytest.mark.gpu
def test_a_card_encodes_what_processes_decode(
    tiny_checkpoint: Path, mixed: list[ImageItem]
) -> None:
    """Batches are copied while others are computed, by two threads."""
    on_card = load_checkpoint(tiny_checkpoint, "cuda").model
    settings = EncodeSettings(readers=READERS, batch_size=3)
    encoder = item_encoder("images", on_card, settings)
    assert encoder.elsewhere is not None
    many = mixed * 20
    batches = [many[at : at + 3] for at in range(0, len(many), 3)]
    found = [batch.encoding for batch in encoded(encoder, batches, settings)]
    on_processor = item_encoder(
        "images", load_checkpoint(tiny_checkpoint).model, EncodeSettings(readers=1)
    )
    for batch, ours in zip(batches, found, strict=True):
        usable = [
            each for each in decode_items(on_processor, batch).found if isinstance(each, Prepared)
        ]
        if ours is None:
            assert not usable
            continue
        theirs = on_processor.encode(usable)
        np.testing.assert_allclose(ours.embedding, theirs.embedding, atol=1e-2)
