"""Models by name: folders and hub names are converted once, checkpoints are taken as they are."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path

import huggingface_hub.constants
import pytest

import aladin_network.checkpoint
import aladin_network.conversion.towers
from aladin_network.calibration.calibration import CALIBRATION
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import CHECKPOINT_FILES, read_model_id
from aladin_network.conversion.named_models import DEFAULT_MODEL, named_model
from aladin_network.errors import CheckpointError
from aladin_network.files import atomic_folder, sha256_of
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.sources.hub_files import PINS
from tests.graph_models import make_graph_model
from tests.tensors import encode_texts

HUB_NAME = "someone/small-clip"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Folder of the converted models, which does not exist yet."""
    return tmp_path / "models"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were converted, in their order."""
    convert, sources = aladin_network.conversion.towers.convert_towers, []

    def counted(source: str, *arguments: object) -> object:
        sources.append(source)
        return convert(source, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(aladin_network.conversion.towers, "convert_towers", counted)
    return sources


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's own cache, empty, and no network."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return folder


def put_into_hub_cache(hub: Path, clip_folder: Path, revision: str = "main") -> None:
    folder = hub / f"models--{HUB_NAME.replace('/', '--')}"
    shutil.copytree(clip_folder, folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    (folder / "refs" / revision).write_text(COMMIT)


def test_a_checkpoint_is_taken_as_it_is(tiny_checkpoint: Path, cache: Path) -> None:
    assert named_model(str(tiny_checkpoint), lambda: cache) == tiny_checkpoint
    assert not cache.exists()


def test_a_folder_is_converted_once_and_anew_when_it_changes(
    clip_folder: Path,
    cache: Path,
    tmp_path: Path,
    conversions: list[str],
    exports: list[Path],
) -> None:
    folder = Path(shutil.copytree(clip_folder, tmp_path / "my clip"))
    first = named_model(str(folder), lambda: cache)
    assert first.parent == cache and first.name.startswith("my-clip-")
    checkpoint = load_checkpoint(first)
    assert not checkpoint.alignment_trained
    moved = folder.rename(tmp_path / "my-clip")
    assert named_model(str(moved), lambda: cache) == first
    assert len(conversions) == 1

    description = moved / "preprocessor_config.json"
    data = json.loads(description.read_text())
    description.write_text(json.dumps(data | {"image_mean": [0.1, 0.2, 0.3]}))
    second = named_model(str(moved), lambda: cache)
    assert second != first and len(conversions) == 2
    assert exports == [first, second]
    preprocessing = load_checkpoint(second).model.config.image_encoder.preprocessing
    assert preprocessing is not None and preprocessing.mean == pytest.approx((0.1, 0.2, 0.3))


def test_a_hub_name_works_offline_if_the_hubs_cache_has_it(
    clip_folder: Path, cache: Path, offline: Path, conversions: list[str]
) -> None:
    put_into_hub_cache(offline, clip_folder)
    first = named_model(HUB_NAME, lambda: cache)
    assert first.name.startswith("someone--small-clip-")
    provenance = json.loads(load_checkpoint(first).provenance.recipe)
    assert provenance["converted_from"] == {"vision": HUB_NAME, "text": HUB_NAME}
    local = named_model(str(clip_folder), lambda: cache)
    ours, theirs = (load_checkpoint(each).model for each in (first, local))
    texts = ["two dogs run"]
    assert encode_texts(ours, texts).embedding.equal(encode_texts(theirs, texts).embedding)

    shutil.rmtree(offline)  # what was converted needs neither the hub nor its cache
    assert named_model(HUB_NAME, lambda: cache) == first
    assert len(conversions) == 2


def test_a_revision_is_another_model_and_without_a_hub_one_line_names_the_ways_out(
    clip_folder: Path, cache: Path, offline: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_into_hub_cache(offline, clip_folder, revision="v2")
    assert named_model(f"{HUB_NAME}@v2", lambda: cache).is_dir()
    caplog.clear()
    caplog.set_level("WARNING")
    with pytest.raises(CheckpointError) as caught:
        named_model(HUB_NAME, lambda: cache)
    message = str(caught.value)
    assert message.startswith(f"{HUB_NAME}: the hub cannot be reached")
    for way in (f"hf download {HUB_NAME} ", "its path", "HF_HOME", "HF_ENDPOINT"):
        assert way in message
    assert "\n" not in message
    assert caplog.messages == []
    only_these = f"hf download {HUB_NAME} --include '*.json' '*_fp16.onnx' --local-dir FOLDER"
    with pytest.raises(CheckpointError, match=re.escape(only_these)) as caught:
        named_model(f"{HUB_NAME}:fp16", lambda: cache)
    assert "give FOLDER:fp16 in place of the name" in str(caught.value)


def test_the_default_model_stands_for_one_commit_whose_files_are_checked(
    cache: Path, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, variant = DEFAULT_MODEL.split(":")
    pin = PINS[name]
    graphs = [f"onnx/{part}_model_{variant}.onnx" for part in ("vision", "text")]
    assert {*graphs, "config.json", "preprocessor_config.json", "tokenizer.json"} <= {*pin.sha256}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in pin.sha256.values())

    made = make_graph_model(tmp_path / "made", "js-clip", [variant]).folder
    snapshots = offline / f"models--{name.replace('/', '--')}" / "snapshots"
    kept = Path(shutil.copytree(made, snapshots / pin.revision))
    digests = {file: sha256_of(kept / file) for file in [*graphs, "tokenizer.json"]}
    monkeypatch.setitem(PINS, name, pin._replace(sha256=digests | {"onnx/other.onnx": "0" * 64}))
    found = named_model(DEFAULT_MODEL, lambda: cache)
    assert named_model(f"{name}@{pin.revision}:{variant}", lambda: cache) == found

    shutil.copytree(kept, snapshots / COMMIT)
    for folder in (kept, snapshots / COMMIT):
        (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " ")
    shutil.rmtree(cache)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected the SHA-256 .*, got "):
        named_model(DEFAULT_MODEL, lambda: cache)
    assert named_model(f"{name}@{COMMIT}:{variant}", lambda: cache).is_dir()


@pytest.mark.parametrize("name", ["{}/x/clip", "clip", "./a/b/c", "a/b/c@v1", "../x", "vit"])
def test_a_name_that_the_hub_cannot_have_or_a_network_without_texts_is_refused(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "vit").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    config = {"model_type": "vit", "hidden_size": 8, "num_attention_heads": 2}
    Path("vit", "config.json").write_text(json.dumps(config))
    missing, other = "no such folder; expected a checkpoint", "a dual encoder .* the type 'vit'"
    with pytest.raises(CheckpointError, match=other if name == "vit" else missing):
        named_model(name.format(tmp_path), lambda: cache)
    assert name == "vit" or not cache.exists()


def test_a_killed_conversion_leaves_nothing_half(
    clip_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(aladin_network.checkpoint, "write_tensors", killed)
        with pytest.raises(KeyboardInterrupt):
            named_model(str(clip_folder), lambda: cache)
    assert [each.suffix for each in cache.iterdir()] == [".lock"]
    # What a kill without any clean-up leaves is cleared by the next conversion.
    key = next(cache.iterdir()).name.removeprefix(".").removesuffix(".lock")
    leftover = cache / f".{key}.1.partial"
    leftover.mkdir()
    converted = named_model(str(clip_folder), lambda: cache)
    assert converted.name == key
    assert load_checkpoint(converted).model_id
    assert not leftover.exists()


def test_two_at_once_convert_once(
    clip_folder: Path, cache: Path, conversions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = threading.Event()
    found: list[Path] = []

    def slow_folder(path: Path) -> object:
        inside.set()
        time.sleep(0.2)
        return atomic_folder(path)

    def convert() -> None:
        found.append(named_model(str(clip_folder), lambda: cache))

    monkeypatch.setattr(aladin_network.checkpoint, "atomic_folder", slow_folder)
    threads = [threading.Thread(target=convert) for _ in range(2)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2 and found[0] == found[1]
    assert len(conversions) == 1


def test_a_checkpoint_on_the_hub_is_taken_as_it_is(
    tiny_checkpoint: Path, cache: Path, offline: Path, conversions: list[str]
) -> None:
    put_into_hub_cache(offline, tiny_checkpoint)
    snapshot = offline / "models--someone--small-clip" / "snapshots" / COMMIT
    for name in ("README.md", CALIBRATION, CORRECTION):
        (snapshot / name).write_text(name)
    found = named_model(HUB_NAME, lambda: cache)
    kept = [*CHECKPOINT_FILES, CALIBRATION, CORRECTION]  # with what is fitted to its weights
    assert sorted(each.name for each in found.iterdir()) == sorted(kept)
    assert (found / CALIBRATION).read_text() == CALIBRATION
    assert read_model_id(found) == read_model_id(tiny_checkpoint)
    assert named_model(HUB_NAME, lambda: cache) == found
    assert conversions == []
