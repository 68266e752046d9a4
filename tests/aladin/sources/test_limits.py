"""Model folders made to do harm: each is refused in one line, before it takes time or memory."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import TextEncoderConfig
from aladin_network.conversion.named_models import named_model
from aladin_network.conversion.towers import TowersOptions, convert_towers
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.encoders.pretrained import load_tower
from aladin_network.errors import CheckpointError
from aladin_network.graphs.files import read_graphs
from aladin_network.graphs.loading import load_for_inference
from aladin_network.sources.limits import check_sizes, stored_shapes

# More than any of them takes; the former code had not ended after a minute.
_SECONDS = 20.0


def each(folder: Path, name: str, value: int) -> None:
    """Set a number wherever a configuration has it."""
    text = (folder / "config.json").read_text("utf-8")
    changed = re.sub(rf'"{name}": \d+', f'"{name}": {value}', text)
    assert changed != text
    (folder / "config.json").write_text(changed, "utf-8")


def header(folder: Path, content: bytes, size: int = 0) -> None:
    """Write weights of a header alone, and of zeros that take no place on the disk."""
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(content)) + content)
        file.truncate(8 + len(content) + size)


def names(count: int) -> bytes:
    entry = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return ("{" + ",".join(entry % number for number in range(count)) + "}").encode()


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def sparse_weights(folder: Path) -> None:
    """Give every tensor of more than one number 20 GiB, of which the disk has nothing."""
    path, size = folder / "model.safetensors", 20 * 2**30
    count = size // 4
    shapes = stored_shapes(path)
    content = {
        name: {"dtype": "F32", "shape": [count], "data_offsets": [size * place, size * (place + 1)]}
        for place, name in enumerate(shapes)
    }
    header(folder, json.dumps(content).encode(), size * len(shapes))


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("false",)


def pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    content = {"weight": _Runs(), "as large as the weights": bytes(500_000)}
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(content, protocol=2))


def instead(file: Path, make: Callable[[Path], None]) -> None:
    file.unlink()
    make(file)


HARM: dict[str, Callable[[Path], object]] = {
    "deep config": lambda folder: (folder / "config.json").write_text(DEEP),
    "many layers": lambda folder: each(folder, "num_hidden_layers", 10**6),
    "wide layers": lambda folder: each(folder, "hidden_size", 2_000_000),
    "many names": lambda folder: header(folder, names(400_000)),
    "deep header": lambda folder: header(folder, DEEP.encode()),
    "sparse weights": sparse_weights,
    "endless weights": lambda folder: instead(
        folder / "model.safetensors", lambda file: file.symlink_to("/dev/zero")
    ),
    "a pipe": lambda folder: instead(folder / "config.json", os.mkfifo),
}


@pytest.fixture(scope="module")
def of_this_project(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "converted"
    convert_towers(str(clip_folder), folder, TowersOptions())
    return folder


def refusal(load: Callable[[], object]) -> str:
    """Return the message of a CheckpointError, which has to come in time."""
    found: list[BaseException] = []

    def run() -> None:
        try:
            load()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    assert not thread.is_alive(), "no end"
    assert found, "nothing was refused"
    message = str(found[0])
    assert isinstance(found[0], CheckpointError), repr(found[0])[:500]
    assert "\n" not in message
    assert len(message) < 1000
    assert "weights_only" not in message
    return message


DOORS: dict[str, Callable[[Path, Path], object]] = {
    "named model": lambda folder, out: named_model(str(folder), lambda: out / "cache"),
    "conversion": lambda folder, out: convert_towers(str(folder), out / "out", TowersOptions()),
    "vision tower": lambda folder, _: load_tower(str(folder), "vision"),
    "text tower": lambda folder, _: HFTextEncoder.from_source(
        TextEncoderConfig(source=str(folder), pooled=True, max_tokens=48), None
    ),
}


@pytest.mark.parametrize("harm", [*HARM, "pickled weights"])
def test_a_folder_of_transformers_is_refused_at_every_door(
    harm: str, clip_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(clip_folder, tmp_path / "model"))
    HARM.get(harm, pickled_weights)(folder)
    for door in DOORS.values():
        message = refusal(lambda door=door: door(folder, tmp_path))
        assert str(folder) in message
        assert harm in HARM or "hold more than tensors" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("harm", HARM)
def test_a_checkpoint_is_refused_at_every_door(
    harm: str, of_this_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(of_this_project, tmp_path / "checkpoint"))
    HARM[harm](folder)
    monkeypatch.setenv("ALADIN_RUNTIME", "torch")
    for load in (load_checkpoint, load_for_inference):
        assert str(folder) in refusal(lambda load=load: load(folder))


@pytest.mark.parametrize("content", ["deep", "pipe"])
def test_a_manifest_of_graphs_is_refused(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "onnx"
    folder.mkdir()
    if content == "pipe":
        os.mkfifo(folder / "manifest.json")
    else:
        (folder / "manifest.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "manifest.json" in refusal(lambda: read_graphs(tmp_path, "0"))


LARGE = {
    "vocab_size": 256_000,
    "hidden_size": 20_480,
    "depths": [3, 4, 60, 3],
    "num_hidden_layers": 200,
    "num_labels": 21_843,
    "layer_norm_eps": 1e-5,
    "tie": True,
}


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": {"num_hidden_layers": 2001}},
        {"depths": [2, 2, 1000, 1000]},
        {"stages": [{"n_layer": 2001}]},
        {"num_labels": 10**9},
        {"vocab_size": 10**18},
    ],
    ids=str,
)
def test_numbers_that_no_network_has_are_refused(config: dict[str, Any]) -> None:
    check_sizes(LARGE)
    with pytest.raises(ValueError, match="expected at most"):
        check_sizes(LARGE | config)
