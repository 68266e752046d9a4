"""Small data sets of real pictures, and a recipe that trains on one in a second."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from PIL import Image

from aladin_training.stage_files import StageLog

Members = Iterable[tuple[str, bytes]]
WriteTar = Callable[..., Path]

COLOURS = ["red", "green", "blue", "yellow", "white", "black"]


DRAW_CURVES = StageLog.draw


@pytest.fixture(scope="module", autouse=True)
def _no_curves() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Draw no curves at the end of a stage, which take three times as long as the stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageLog, "draw", lambda _: None)
        yield


@pytest.fixture(scope="session")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 training and 6 validation pictures of one colour each, with one to three captions."""
    folder = tmp_path_factory.mktemp("pictures")
    lines: list[str] = []
    for number in range(18):
        colour = COLOURS[number % 6]
        name = f"{number}.png"
        Image.new("RGB", (40, 32), colour).save(folder / name)
        captions = [f"a {colour} picture", f"all is {colour}", f"{colour} paint"]
        split = "train" if number < 12 else "val"
        entry = {"image": name, "captions": captions[: 1 + number % 3], "split": split}
        lines.append(json.dumps(entry))
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "captions.jsonl"


# The trunks and heads of small networks.
HEADS = """
[model.image_tower.trunk]
width = 16
heads = 2
feedforward = 32
[model.text_tower.trunk]
width = 16
heads = 2
feedforward = 32
[model.alignment]
dim = 8
[model.matching]
layers = 1
heads = 2
"""
RECIPE = (
    """
name = "test"
precision = "float32"
threads = 1
[data]
source = "{source}"
cache = "{cache}"
mirror = true
[tokenizer]
vocabulary_size = 200
[model.image_encoder]
frozen = {frozen}
preprocessing = {{ height_px = 32, width_px = 32 }}
[model.image_encoder.architecture]
model_type = "vit"
hidden_size = 24
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
image_size = 32
patch_size = 8
[model.text_encoder]
frozen = {frozen}
max_tokens = 16
[model.text_encoder.architecture]
model_type = "bert"
hidden_size = 20
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
"""
    + HEADS
    + """
[[stage]]
name = "joint"
epochs = 3
batch_size = 8
average_decay = 0.9
[stage.tasks.alignment]
loss = "infonce"
options = {{ temperature = 0.2, learnable = true }}
[stage.tasks.matching]
loss = "triplet"
[[stage]]
name = "student"
epochs = 2
batch_size = 8
train = ["matching"]
reset = ["matching"]
[stage.tasks.distillation]
loss = "listnet"
"""
)


@pytest.fixture(scope="session")
def recipe_path(tmp_path_factory: pytest.TempPathFactory, data_set: Path) -> Path:
    """A recipe of two stages: both heads together, then a student from the alignment."""
    folder = tmp_path_factory.mktemp("recipe")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(source=data_set, cache=folder / "cache", frozen="true"))
    return path


@pytest.fixture(scope="session")
def picture() -> Callable[[int], bytes]:
    """The bytes of a PNG, another one for every number."""

    def write(number: int) -> bytes:
        target = io.BytesIO()
        Image.new("RGB", (4, 3), (number % 256, 7, 9)).save(target, "PNG")
        return target.getvalue()

    return write


@pytest.fixture
def write_tar(tmp_path: Path) -> WriteTar:
    """Write a tar of (name, bytes): ``write_tar("a.tar", members, format=tarfile.PAX_FORMAT)``."""

    def write(name: str, members: Members, format: int = tarfile.USTAR_FORMAT) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w", format=format) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    return write


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[..., Path]:
    """Write columns: ``write_parquet("a.parquet", {"path": [...]}, row_group_size=2)``."""
    import pyarrow
    from pyarrow.parquet import write_table

    def write(name: str, columns: Mapping[str, list[object]], **options: int) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(pyarrow.table(dict(columns)), path, **options)
        return path

    return write
