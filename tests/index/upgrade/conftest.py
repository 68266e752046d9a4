"""A second network with other sizes, an index to be upgraded to it, and upgrades cut short."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.upgrade.encoding import EncodingSettings, PartsWriter
from aladin_index.upgrade.run import UpgradeSettings, upgrade_index
from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import AlignmentHeadConfig, MatchingHeadConfig
from aladin_network.model import AladinModel

ENCODING = EncodingSettings(batch_size=3, part_items=6, sample_items=9)
SETTINGS = UpgradeSettings(encoding=ENCODING)


class CutShortError(Exception):
    """An upgrade ends as if it were killed."""


@pytest.fixture(scope="session")
def new_checkpoint(
    build_tiny: Callable[..., AladinModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint of a network with other weights and sizes than `tiny_checkpoint`."""
    folder = tmp_path_factory.mktemp("new") / "checkpoint"
    model = build_tiny(
        alignment=AlignmentHeadConfig(dim=12),
        matching=MatchingHeadConfig(layers=1, heads=2, dim=24),
    )
    save_checkpoint(folder, model)
    return folder


@pytest.fixture
def same_weights(new_checkpoint: Path, tmp_path: Path) -> Path:
    """The new model with another fusion."""
    folder = Path(shutil.copytree(new_checkpoint, tmp_path / "same weights"))
    config = json.loads((folder / "config.json").read_text())
    config["fusion"]["text_to_image"]["weight"] = 0.125
    (folder / "config.json").write_text(json.dumps(config))
    return folder


Begin = Callable[..., None]


@pytest.fixture
def begin(new_checkpoint: Path) -> Begin:
    """Return a function that begins an upgrade and ends it after so many parts."""

    def run(root: Path, parts: int, settings: UpgradeSettings = SETTINGS) -> None:
        begin_upgrade(root, new_checkpoint, parts, settings)

    return run


def begin_upgrade(root: Path, checkpoint: Path, parts: int, settings: UpgradeSettings) -> None:
    """Begin an upgrade and end it, as if it were killed, after so many parts."""
    left = parts
    write = PartsWriter._write_part

    def counted(writer: PartsWriter, *arguments: object) -> None:
        nonlocal left
        if left == 0:
            raise CutShortError
        left -= 1
        write(writer, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartsWriter, "_write_part", counted)
        with pytest.raises(CutShortError):
            upgrade_index(root, checkpoint, settings)
