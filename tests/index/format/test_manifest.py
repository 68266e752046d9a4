import json
from pathlib import Path

import pytest

from aladin_index.format.manifest import (
    DIGEST,
    MANIFEST,
    AnnEntry,
    CollectionEntry,
    FidelityPoint,
    Manifest,
    ModelEntry,
    RecallPoint,
    Tuning,
    check_lengths,
    read_manifest,
    write_manifest,
)
from aladin_network.errors import IndexCorruptError, IndexMismatchError
from aladin_network.files import FileEntry, describe_files

MANIFEST_JSON = """{
  "schema_version": 1,
  "metric": "inner_product",
  "images": {
    "count": 7,
    "embedding_dim": 256,
    "token_dim": 128,
    "token_dtype": "int8",
    "skipped": 1,
    "token_count": 343,
    "filter_fields": [
      "year"
    ],
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
      "curve": [
        {
          "search_width": 128,
          "oversample": 2.0,
          "recall": 0.995,
          "search_ms": 0.25
        }
      ]
    },
    "tuning": {
      "candidates": 60,
      "fidelity": 0.98,
      "fidelity_wanted": 0.97,
      "at": 10,
      "queries": 50,
      "curve": [
        {
          "candidates": 60,
          "fidelity": 0.98,
          "search_ms": 1.5
        }
      ]
    },
    "bounds": null,
    "corrected": false
  },
  "texts": null,
  "calibration": null,
  "files": {
    "images/ann.faiss": {
      "bytes": 10,
      "sha256": "5678"
    }
  },
  "generation": 3,
  "default_candidates": 100,
  "fingerprint": "f00d",
  "made_by": "tune",
  "replaces": 1,
  "model": {
    "id": "abc",
    "files": {
      "config.json": {
        "bytes": 2,
        "sha256": "1234"
      }
    }
  },
  "correction": null
}
"""


def example() -> Manifest:
    return Manifest(
        schema_version=1,
        generation=3,
        metric="inner_product",
        default_candidates=100,
        fingerprint="f00d",
        made_by="tune",
        replaces=1,
        model=ModelEntry(id="abc", files={"config.json": FileEntry(bytes=2, sha256="1234")}),
        images=CollectionEntry(
            count=7,
            skipped=1,
            embedding_dim=256,
            token_dim=128,
            token_count=343,
            token_dtype="int8",
            filter_fields=["year"],
            ann=AnnEntry(
                memory_budget_bytes=1_000_000,
                factory="HNSW32_SQ8",
                search_width=128,
                oversample=2.0,
                recall=0.995,
                recall_at=7,
                recall_queries=200,
                recall_wanted=0.99,
                curve=[RecallPoint(search_width=128, oversample=2.0, recall=0.995, search_ms=0.25)],
            ),
            tuning=Tuning(
                candidates=60,
                fidelity=0.98,
                fidelity_wanted=0.97,
                at=10,
                queries=50,
                curve=[FidelityPoint(candidates=60, fidelity=0.98, search_ms=1.5)],
            ),
        ),
        texts=None,
        files={"images/ann.faiss": FileEntry(bytes=10, sha256="5678")},
    )


def test_the_format_on_disk_is_this_and_reads_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, example())
    assert json.loads((tmp_path / MANIFEST).read_text()) == json.loads(MANIFEST_JSON)
    assert read_manifest(tmp_path) == example()
    assert read_manifest(tmp_path).targets == ["images"]


def test_a_collection_that_was_tuned_has_candidates_of_its_own() -> None:
    assert example().candidates("images") == 60
    assert example().candidates("texts") == 100


@pytest.mark.parametrize("name", [MANIFEST, DIGEST])
def test_any_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    write_manifest(tmp_path, example())
    content = (tmp_path / name).read_bytes()
    for place in range(0, len(content), 17):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(IndexCorruptError, match=r"manifest\.json"):
            read_manifest(tmp_path)


def rewrite(folder: Path, **changes: object) -> None:
    """Write a manifest with other keys, and the checksum that belongs to it."""
    write_manifest(folder, example())
    data = json.loads((folder / MANIFEST).read_text()) | changes
    (folder / MANIFEST).write_text(json.dumps(data))
    digest = describe_files(folder, [MANIFEST])[MANIFEST].sha256
    (folder / DIGEST).write_text(f"{digest}\n")


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    rewrite(tmp_path, schema_version=2)
    with pytest.raises(IndexMismatchError, match="expected 1, got 2"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("changes", [{"surprise": 1}, {"generation": "3"}, {"metric": "l2"}])
def test_unknown_keys_and_wrong_values_are_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    rewrite(tmp_path, **changes)
    with pytest.raises(IndexCorruptError, match=next(iter(changes))):
        read_manifest(tmp_path)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexCorruptError, match=r"manifest\.json: cannot be read"):
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
