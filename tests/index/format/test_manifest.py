"""The manifest on the disk, any changed byte of it, and the lengths of the files that it lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aladin_index.format.manifest import (
    DIGEST,
    MANIFEST,
    check_lengths,
    read_manifest,
    write_manifest,
)
from aladin_network.errors import IndexCorruptError, IndexMismatchError
from aladin_network.files import FileEntry, describe_files

# As it is on the disk.
STORED: dict[str, Any] = {
    "schema_version": 1,
    "metric": "inner_product",
    "images": {
        "count": 7,
        "embedding_dim": 256,
        "token_dim": 128,
        "token_dtype": "int8",
        "skipped": 1,
        "token_count": 343,
        "filter_fields": ["year"],
        "ann": {
            "search_width": 128,
            "oversample": 2.0,
            "recall": 0.995,
            "asked": "auto",
            "memory_budget_bytes": 1000000,
            "factory": "HNSW32_SQ8",
            "recall_at": 7,
            "recall_queries": 200,
            "recall_wanted": 0.99,
            "curve": [{"search_width": 128, "oversample": 2.0, "recall": 0.995, "search_ms": 0.25}],
        },
        "tuning": {
            "candidates": 60,
            "fidelity": 0.98,
            "fidelity_wanted": 0.97,
            "at": 10,
            "queries": 50,
            "curve": [{"candidates": 60, "fidelity": 0.98, "search_ms": 1.5}],
        },
        "bounds": None,
        "corrected": False,
    },
    "texts": None,
    "calibration": None,
    "files": {"images/ann.faiss": {"bytes": 10, "sha256": "5678"}},
    "generation": 3,
    "default_candidates": 100,
    "fingerprint": "f00d",
    "made_by": "tune",
    "replaces": 1,
    "model": {"id": "abc", "files": {"config.json": {"bytes": 2, "sha256": "1234"}}},
    "correction": None,
}


def write_text(folder: Path, **changes: Any) -> None:
    """Write a manifest, with other values of some keys, and the checksum that belongs to it."""
    (folder / MANIFEST).write_text(json.dumps(STORED | changes))
    digest = describe_files(folder, [MANIFEST])[MANIFEST].sha256
    (folder / DIGEST).write_text(f"{digest}\n")


def test_the_format_on_disk_is_this_and_reads_back(tmp_path: Path) -> None:
    write_text(tmp_path)
    manifest = read_manifest(tmp_path)
    images = manifest.images
    assert images is not None and images.tuning is not None
    assert (manifest.targets, manifest.texts) == (["images"], None)
    assert (manifest.generation, manifest.made_by, manifest.replaces) == (3, "tune", 1)
    assert (manifest.model.id, manifest.metric) == ("abc", "inner_product")
    assert manifest.files == {"images/ann.faiss": FileEntry(bytes=10, sha256="5678")}
    assert (images.count, images.token_dtype, images.filter_fields) == (7, "int8", ["year"])
    assert (images.ann.factory, images.ann.curve[0].search_ms) == ("HNSW32_SQ8", 0.25)
    # A collection that was tuned has candidates of its own.
    assert (manifest.candidates("images"), manifest.candidates("texts")) == (60, 100)
    (tmp_path / "again").mkdir()
    write_manifest(tmp_path / "again", manifest)
    assert json.loads((tmp_path / "again" / MANIFEST).read_text()) == STORED
    assert read_manifest(tmp_path / "again") == manifest


@pytest.mark.parametrize("name", [MANIFEST, DIGEST])
def test_any_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    write_text(tmp_path)
    content = (tmp_path / name).read_bytes()
    for place in range(0, len(content), 17):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(IndexCorruptError, match=r"manifest\.json"):
            read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (None, IndexCorruptError, r"manifest\.json: cannot be read"),
        ({"schema_version": 2}, IndexMismatchError, "expected 1, got 2"),
        ({"surprise": 1}, IndexCorruptError, "surprise"),
        ({"generation": "3"}, IndexCorruptError, "generation"),
        ({"metric": "l2"}, IndexCorruptError, "metric"),
    ],
    ids=str,
)
def test_another_manifest_is_refused(
    tmp_path: Path, changes: dict[str, Any] | None, kind: type[Exception], message: str
) -> None:
    if changes is not None:
        write_text(tmp_path, **changes)
    with pytest.raises(kind, match=message):
        read_manifest(tmp_path)


def test_lengths_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    files = describe_files(tmp_path, ["a"])
    assert files["a"].bytes == 3
    assert files["a"].sha256.startswith("a665a45920422f9d")  # sha256 of "123"
    check_lengths(tmp_path, files)
    (tmp_path / "a").write_bytes(b"1234")
    with pytest.raises(IndexCorruptError, match="expected 3 bytes, got 4"):
        check_lengths(tmp_path, files)
    (tmp_path / "a").unlink()
    with pytest.raises(IndexCorruptError, match="a: missing"):
        check_lengths(tmp_path, files)
