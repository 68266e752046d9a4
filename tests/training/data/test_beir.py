"""BEIR folders whose corpus or queries are photos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data import read_records
from aladin_training.data.texts import iter_texts

PHOTOS = [{"_id": f"p{n}", "image": f"photos/{n}.jpg", "metadata": {"n": n}} for n in range(3)]
TEXTS = [
    {"_id": "t1", "text": "a dog", "title": ""},
    {"_id": "t2", "text": "runs", "title": "A dog"},
    {"_id": "t3", "text": "a cat"},
]
PAIRS = [("t1", "p0"), ("t2", "p0"), ("t3", "p1")]


def write(
    folder: Path,
    corpus: list[dict[str, object]],
    queries: list[dict[str, object]],
    qrels: dict[str, list[tuple[str, str]]],
) -> Path:
    (folder / "qrels").mkdir()
    (folder / "photos").mkdir()
    for number in range(3):
        (folder / "photos" / f"{number}.jpg").touch()
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for name, pairs in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"{a}\t{b}\t1" for a, b in pairs)]
        (folder / "qrels" / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_texts_ask_for_photos(tmp_path: Path) -> None:
    folder = write(tmp_path, PHOTOS, TEXTS, {"test": PAIRS[:2], "dev": PAIRS[2:]})

    first, second, third = read_records(folder, "test", require_captions=False)

    assert (first.id, first.captions, first.caption_ids) == (
        "p0",
        ("a dog", "A dog runs"),
        ["t1", "t2"],
    )
    assert (second.captions, third.captions) == ((), ())  # they compete
    assert first.metadata == {"n": 0}
    assert first.photo.path == tmp_path / "photos" / "0.jpg"
    assert [each.captions for each in read_records(folder, "val", require_captions=False)] == [
        (),
        ("a cat",),
        (),
    ]
    assert [text.id for text in iter_texts(folder)] == ["t1", "t2", "t3"]
    with pytest.raises(DataError, match=r"has no split 'train', known are \['dev', 'test'\]"):
        read_records(folder, "train")


def test_photos_ask_for_texts(tmp_path: Path) -> None:
    pairs = [(photo, text) for text, photo in PAIRS]
    folder = write(tmp_path, TEXTS, PHOTOS, {"test": pairs})

    records = read_records(folder, "test")

    assert [(each.id, each.caption_ids) for each in records] == [
        ("p0", ["t1", "t2"]),
        ("p1", ["t3"]),
    ]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([*PAIRS, ("t1", "p2")], r"test.tsv:5: text 't1' is relevant to the photos 'p0' and 'p2'"),
        ([("t9", "p0")], r"test.tsv:2: id 't9' is not in queries.jsonl"),
        ([("p0", "t1")], r"test.tsv:2: id 't1' is not in corpus.jsonl"),
    ],
)
def test_judgements_that_cannot_be_used(
    tmp_path: Path, pairs: list[tuple[str, str]], message: str
) -> None:
    folder = write(tmp_path, PHOTOS, TEXTS, {"test": pairs})

    with pytest.raises(DataError, match=message):
        read_records(folder, "test")


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    folder = write(tmp_path, TEXTS, TEXTS[:0], {"test": PAIRS})
    with pytest.raises(DataError, match=r"queries.jsonl: holds no line"):
        read_records(folder)
    (folder / "queries.jsonl").write_text(json.dumps(TEXTS[0]))
    with pytest.raises(
        DataError, match=r"expected photos in corpus.jsonl or queries.jsonl, found n"
    ):
        read_records(folder)
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, PHOTOS)))
    (folder / "qrels" / "test.tsv").write_text("p0\tt1\n")
    with pytest.raises(DataError, match=r"test.tsv:1: expected 4 columns, got 2"):
        read_records(folder)
    (folder / "qrels" / "test.tsv").write_text("p0\tt1\t1\n")
    with pytest.raises(DataError, match="text 't2' is relevant to no photo of split 'test'"):
        read_records(folder, "test")
