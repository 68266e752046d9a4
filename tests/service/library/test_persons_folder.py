"""Of a person's folder every file is found, or named with its reason, or counted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from aladin_index.building.builder import build_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_service.item_sources import image_items
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from tests.service.commands.conftest import aladin_json
from tests.service.library.persons_folder import FILES, make_persons_folder


def told_by(index: Path) -> dict[str, dict[str, Any]]:
    with open_index(index) as opened:
        items = opened.collection("images").items
        return {item.id: item.metadata for item in items.by_rows([row for _, row in items.ids()])}


def test_every_file_is_found_or_named_or_counted(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder, index = tmp_path / "Pictures", tmp_path / "index"
    made = make_persons_folder(folder)
    assert made.files == sum(len(names) for *_, names in os.walk(folder)) + 1 == FILES  # a link
    # As a library: some photos first, and then a pass over the folder.
    some = image_items(folder / "exif", None)
    build_index(tiny_checkpoint, index, some, None, BuildSettings(readers=2))
    settings = FolderSettings(folders=[folder], add=EncodeSettings(readers=2))
    sync = FolderSync(index, settings, checkpoint=load_checkpoint(tiny_checkpoint))
    report = sync.run()

    found = told_by(index)
    assert found.keys() == made.found
    for name, fields in made.told.items():
        assert {field: found[name].get(field) for field in fields} == fields, name
    assert all("date_source" in each for each in found.values())
    reasons = dict(report.skipped)
    assert reasons.keys() == made.named.keys()
    for name, reason in made.named.items():
        assert reason in reasons[name]
    # The same by reason and by kind, for whoever asks the index.
    skipped = aladin_json("index", "info", index)["skipped"]
    assert skipped["total"] == len(made.named)
    assert skipped["other_files"] == made.counted
    assert sum(each["count"] for each in skipped["reasons"]) == len(made.named)
    assert {name for each in skipped["reasons"] for name in each["names"]} == made.named.keys()
    assert len(skipped["reasons"]) < len(made.named)

    # A second pass finds nothing to do, and says the same.
    again = sync.run()
    assert (again.encoded, again.has_changes) == (0, False)
    assert sorted(again.skipped) == sorted(report.skipped)
