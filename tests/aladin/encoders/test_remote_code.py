"""A model folder with Python code of its own: the code never runs, whatever standard input says."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import (
    AutoModelForImageClassification,
    YolosConfig,
    YolosForObjectDetection,
)

from aladin_network.detectors.objects import ObjectDetector, ObjectOptions
from aladin_network.encoders.hf_text import load_tokenizer
from aladin_network.encoders.pretrained import load_tower
from aladin_network.encoders.transformers_model import load_network
from aladin_network.encoders.vision_tower import read_preprocessing
from aladin_network.errors import CheckpointError

CODE = """
from pathlib import Path
Path({mark!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizerFast, ViTImageProcessor


class OwnConfig(BertConfig):
    model_type = "of_its_own"

OwnModel, OwnTokenizer, OwnProcessor = BertModel, BertTokenizerFast, ViTImageProcessor
"""
AUTO_MAP = {
    "AutoConfig": "own.OwnConfig",
    "AutoModel": "own.OwnModel",
    "AutoModelForObjectDetection": "own.OwnModel",
    "AutoModelForImageClassification": "own.OwnModel",
    "AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"],
    "AutoImageProcessor": "own.OwnProcessor",
}
LOADERS: dict[str, Callable[[str], object]] = {
    "photo tower": lambda source: load_tower(source, "vision"),
    "text tower": lambda source: load_tower(source, "text"),
    "dual encoder": lambda source: load_tower(source, "text", pooled=True),
    "tokenizer": load_tokenizer,
    "preprocessing": read_preprocessing,
    "object detector": lambda source: ObjectDetector.from_source(source, ObjectOptions(), "cpu"),
    "known object detector": lambda source: ObjectDetector.from_source(
        source, ObjectOptions(), "cpu"
    ),
    "window detector": lambda source: load_network(
        AutoModelForImageClassification, source, None, "cpu"
    ),
}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that the code would write."""
    return tmp_path / "ran"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every question with yes, and keep code that ran all the same out of the caches."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    for module in ("transformers.dynamic_module_utils", "transformers.utils.hub"):
        monkeypatch.setattr(f"{module}.HF_MODULES_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path, mark: Path, request: pytest.FixtureRequest) -> str:
    """A folder whose network (unless known), tokenizer and preprocessing name the code."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in {
        "config.json": {"model_type": "of_its_own", "auto_map": AUTO_MAP},
        "tokenizer_config.json": {"tokenizer_class": "OwnTokenizer", "auto_map": AUTO_MAP},
        "preprocessor_config.json": {"image_processor_type": "OwnProcessor", "auto_map": AUTO_MAP},
    }.items():
        (folder / name).write_text(json.dumps(content))
    if "known" in request.node.callspec.params["loader"]:
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = YolosConfig(image_size=[16, 16], intermediate_size=8, patch_size=8, **sizes)
        YolosForObjectDetection(config).save_pretrained(folder)
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    return str(folder)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("loader", LOADERS)
def test_code_of_a_model_never_runs(
    loader: str, source: str, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        LOADERS[loader](source)
    assert not mark.exists()
    message = str(caught.value)
    assert message.startswith(f"{source}: cannot ")
    assert message.endswith(
        "(it needs Python code of its own repository, and such code is never run)"
    )
    assert "\n" not in message
    assert "custom code" not in "".join(capsys.readouterr())  # nobody was asked
