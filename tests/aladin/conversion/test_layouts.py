"""Which files of a model are taken: its weights once, in one form."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aladin_network.checkpoint_files import read_model_id
from aladin_network.conversion.layouts import Variant, graph_files, plain_files
from aladin_network.conversion.named_models import named_model
from aladin_network.errors import CheckpointError, ConfigError
from tests.graph_models import make_graph_model

IMMICH = [
    "config.json",
    "README.md",
    "textual/model.onnx",
    "textual/model.armnn",
    "textual/tokenizer.json",
    "textual/tokenizer_config.json",
    "textual/special_tokens_map.json",
    "textual/transformer.encoder.weight",
    "visual/model.onnx",
    "visual/model.rknn",
    "visual/preprocess_cfg.json",
]
JS = [
    "config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "onnx/text_model.onnx",
    "onnx/text_model.onnx_data",
    "onnx/text_model_quantized.onnx",
    "onnx/text_model_bnb4.onnx",
    "onnx/vision_model.onnx",
    "onnx/vision_model_quantized.onnx",
]


@pytest.mark.parametrize(
    ("present", "taken"),
    [
        (
            ["model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin", "tf.h5"],
            ["model.safetensors"],
        ),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "a.bin"],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ),
        (["pytorch_model.bin", "flax_model.msgpack", "other.bin"], ["pytorch_model.bin"]),
        (["weights.safetensors", "weights.bin"], ["weights.safetensors"]),
        (["onnx/model.safetensors", "x.bin"], ["x.bin"]),
        (["README.md"], []),
    ],
)
def test_weights_are_taken_in_their_best_form(present: list[str], taken: list[str]) -> None:
    described = ["config.json", "merges.txt", "spiece.model", "correction.safetensors"]
    assert plain_files([*described, *present]) == [*described, *taken]


def test_of_layouts_with_graphs_what_is_read_is_taken() -> None:
    found = graph_files(IMMICH, Variant())
    assert found is not None
    assert found.weights == {
        "image": ["visual/model.onnx"],
        "text": ["textual/model.onnx", "textual/transformer.encoder.weight"],
    }
    assert set(found.descriptions) == {
        "config.json",
        "visual/preprocess_cfg.json",
        "textual/tokenizer.json",
        "textual/tokenizer_config.json",
    }
    found = graph_files(JS, Variant.of(["quantized"]))
    assert found is not None
    assert found.weights == {
        "image": ["onnx/vision_model_quantized.onnx"],
        "text": ["onnx/text_model_quantized.onnx"],
    }
    plain = graph_files(JS, Variant())
    assert plain is not None
    assert plain.weights["text"] == ["onnx/text_model.onnx", "onnx/text_model.onnx_data"]
    with pytest.raises(CheckpointError, match="variants quantized behind a colon, or none"):
        graph_files(JS, Variant.of(["bnb4"]))  # the other graph has none
    assert graph_files(["config.json", "onnx/model.onnx"], Variant()) is None


class Hub:
    """A hub with one model; it notes what it is asked for."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        self.asked: list[str] = []
        self.fetched: list[str] = []

    def model_info(self, name: str, *, revision: str | None) -> Any:
        self.asked.append(f"{name} {revision}")
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return SimpleNamespace(
            sha="c0ffee", siblings=[SimpleNamespace(rfilename=name) for name in names]
        )

    def snapshot_download(self, name: str, *, revision: str, allow_patterns: list[str]) -> str:
        assert (name, revision) == ("someone/clip", "c0ffee")
        for file in allow_patterns:
            (self.cache / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / file, self.cache / file)
            self.fetched.append(file)
        return str(self.cache)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path / "remote", tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made)
    monkeypatch.setattr("huggingface_hub.snapshot_download", made.snapshot_download)
    return made


def test_a_hub_is_asked_once_and_one_form_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    folder = make_graph_model(hub.folder, "js-clip", ["", "quantized"]).folder
    (folder / "README.md").write_text("a model")
    for _ in range(2):
        found = named_model("someone/clip@v1:quantized", lambda: tmp_path / "models")
    assert found.name.startswith("someone--clip--quantized-")
    assert hub.asked == ["someone/clip v1"]
    assert sorted(hub.fetched) == [
        "config.json",
        "onnx/text_model_quantized.onnx",
        "onnx/vision_model_quantized.onnx",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    local = named_model(f"{folder}:quantized", lambda: tmp_path / "models")
    assert read_model_id(local) == read_model_id(found)


def test_weights_are_preferred_where_torch_reads_them_and_graphs_elsewhere(
    hub: Hub, clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_graph_model(hub.folder, "js-clip")
    (hub.folder / "model.safetensors").write_bytes((clip_folder / "model.safetensors").read_bytes())
    monkeypatch.setattr("aladin_network.errors.find_spec", lambda _: None)
    named_model("someone/clip", lambda: tmp_path / "models")
    assert "onnx/vision_model.onnx" in hub.fetched and "model.safetensors" not in hub.fetched
    shutil.rmtree(hub.folder / "onnx")
    fetched = list(hub.fetched)
    says = r"has no graphs, and needs the package torch: .*'aladin-search\[train\]'.*:fp16$"
    with pytest.raises(ConfigError, match=says):
        named_model("someone/clip", lambda: tmp_path / "other")
    assert hub.fetched == fetched  # it is refused before the download
    with pytest.raises(ConfigError, match=says):
        named_model(str(clip_folder), lambda: tmp_path / "other")
    make_graph_model(hub.folder, "js-clip")
    monkeypatch.undo()
    shutil.copytree(clip_folder, tmp_path / "both")
    shutil.copytree(hub.folder / "onnx", tmp_path / "both" / "onnx")
    found = named_model(str(tmp_path / "both"), lambda: tmp_path / "models")
    assert (found / "model.safetensors").exists()
    with pytest.raises(CheckpointError, match="has no graphs, so there is no 'fp16' of it"):
        named_model(f"{clip_folder}:fp16", lambda: tmp_path / "models")
