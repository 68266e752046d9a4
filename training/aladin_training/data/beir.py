"""Folders in BEIR's format that pair photos with texts, in either direction.

    corpus.jsonl    {"_id": "...", "title": "...", "text": "..."} or {"_id": "...", "image": "..."}
    queries.jsonl   the same
    qrels/test.tsv  query-id, corpus-id and score, with a header; a score above 0 is relevant

Either the corpus or the queries are photos, given by a path relative to the folder, and the others
are texts. A text belongs to exactly one photo, as everywhere in this project. Networks for texts
alone are trained on folders with texts on both sides (`read_text_pairs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_network.photos.files import PHOTO, PhotoFile, first_of
from aladin_training.data.fields import Fields, Place
from aladin_training.data.json_files import read_lines
from aladin_training.data.records import DocumentRecord, LocatedRecord, Record
from aladin_training.data.trec import read_qrels

_CORPUS, _QUERIES, _QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
# Names of the split that is called "val" everywhere else.
_VALIDATION = ("val", "dev", "validation")


class _Photo(NamedTuple):
    uri: str
    place: Place
    fields: Fields


class _Side(NamedTuple):
    """Corpus or queries: either photos or texts by id, in order."""

    file: Path
    photos: dict[str, _Photo]
    texts: dict[str, str]


def is_beir(folder: Path) -> bool:
    """Tell whether a folder is in BEIR's format."""
    return (
        (folder / _CORPUS).is_file()
        and (folder / _QUERIES).is_file()
        and (folder / _QRELS).is_dir()
    )


def read_beir(folder: Path, split: str | None) -> Iterator[LocatedRecord]:
    """Read the photos of a BEIR folder, with the texts that are relevant to them.

    Photos of the corpus that no query asks for are yielded without captions: they compete. The ids
    of the captions are those of the texts.

    Args:
        folder: Folder with corpus, queries and qrels.
        split: Name of a file of qrels, or None for all of them. ``dev`` and ``validation`` are
            also called ``val``.

    Raises:
        DataError: If a file cannot be read, an id repeats or is unknown, there is no such split,
            not exactly one side has photos, a text is relevant to several photos, or a corpus of
            texts has one without a photo.
    """
    corpus, queries = _read_side(folder / _CORPUS), _read_side(folder / _QUERIES)
    if bool(corpus.photos) == bool(queries.photos):
        found = "both" if corpus.photos else "neither"
        raise DataError(folder, None, f"expected photos in {_CORPUS} or {_QUERIES}, found {found}")
    asks_photos = bool(queries.photos)
    photos, texts = (queries, corpus) if asks_photos else (corpus, queries)
    photo_of: dict[str, str] = {}
    for file in _files(folder, split):
        for qrel in read_qrels(file):
            photo, text = qrel.query, qrel.document
            if not asks_photos:
                photo, text = text, photo
            for item, side, ids in ((photo, photos, photos.photos), (text, texts, texts.texts)):
                if item not in ids:
                    raise qrel.place.error(f"id {item!r} is not in {side.file.name}")
            if qrel.relevance <= 0:
                continue
            if photo_of.setdefault(text, photo) != photo:
                reason = f"text {text!r} is relevant to the photos {photo_of[text]!r} and {photo!r}"
                raise qrel.place.error(f"{reason}; expected one")
    unused = next((text for text in texts.texts if text not in photo_of), None)
    if asks_photos and unused is not None:
        reason = f"text {unused!r} is relevant to no photo of split {split or 'all'!r}"
        raise DataError(texts.file, None, f"{reason}; expected one for every text of the corpus")
    return _records(folder, photos, texts, photo_of, split, asks_photos)


def read_text_pairs(folder: Path, split: str | None) -> list[DocumentRecord]:
    """Read the documents that answer a query, with their queries.

    A query belongs to the most relevant of its documents, of equal ones to the first. Documents
    that answer no query of the split are left out.

    Args:
        folder: Folder with corpus, queries and qrels; both sides are texts.
        split: See `read_beir`.

    Raises:
        DataError: If it is no such folder, a file cannot be read, an id repeats or is unknown,
            there is no such split, or no document is relevant.
    """
    if not is_beir(folder):
        raise DataError(
            folder,
            None,
            f"expected a folder with {_CORPUS}, {_QUERIES} and {_QRELS}: the network is for texts"
            " alone",
        )
    corpus, queries = _read_side(folder / _CORPUS), _read_side(folder / _QUERIES)
    for side in (corpus, queries):
        if side.photos:
            raise DataError(side.file, None, "expected texts, got photos: the network reads texts")
    best: dict[str, tuple[float, str]] = {}
    for file in _files(folder, split):
        for qrel in read_qrels(file):
            for item, side in ((qrel.document, corpus), (qrel.query, queries)):
                if item not in side.texts:
                    raise qrel.place.error(f"id {item!r} is not in {side.file.name}")
            if qrel.relevance > max(0, best.get(qrel.query, (0, ""))[0]):
                best[qrel.query] = (qrel.relevance, qrel.document)
    asked: dict[str, list[str]] = {}
    for query, (_, document) in best.items():
        asked.setdefault(document, []).append(queries.texts[query])
    if not asked:
        raise DataError(folder / _QRELS, None, f"split {split or 'all'!r} has no relevant document")
    return [
        DocumentRecord(id=document, document=text, captions=tuple(asked[document]))
        for document, text in corpus.texts.items()
        if document in asked
    ]


def _records(
    folder: Path,
    photos: _Side,
    texts: _Side,
    photo_of: dict[str, str],
    split: str | None,
    asks_photos: bool,
) -> Iterator[LocatedRecord]:
    captions: dict[str, list[str]] = {}
    for text in texts.texts:
        if text in photo_of:
            captions.setdefault(photo_of[text], []).append(text)
    for photo, (uri, place, fields) in photos.photos.items():
        own = captions.get(photo, [])
        if asks_photos and not own:  # a query of another split
            continue
        record = Record(
            id=photo,
            photo=PhotoFile(folder.absolute() / uri),
            uri=uri,
            captions=tuple(texts.texts[text] for text in own),
            split=split,
            metadata=fields.mapping("metadata"),
            text_ids=tuple(own),
        )
        yield LocatedRecord(place, record)


def _read_side(file: Path) -> _Side:
    side = _Side(file, {}, {})
    for line in read_lines(file, known=None):
        item = line.text("_id")
        if item in side.photos or item in side.texts:
            raise line.place.error(f"id {item!r} repeats")
        column = first_of(PHOTO, [name for name in PHOTO if name in line])
        uri = None if column is None else line.optional_text(column)
        if uri is not None:
            side.photos[item] = _Photo(uri, line.place, line)
        else:
            title = "" if line.is_blank("title") else f"{line.text('title')} "
            side.texts[item] = title + line.text("text")
        if side.photos and side.texts:
            raise line.place.error("expected photos or texts, got both in one file")
    if not side.photos and not side.texts:
        raise DataError(file, None, "holds no line")
    return side


def _files(folder: Path, split: str | None) -> list[Path]:
    files = sorted((folder / _QRELS).glob("*.tsv"))
    if not files:
        raise DataError(folder / _QRELS, None, "expected files such as test.tsv, found none")
    if split is None:
        return files
    names = (split, *_VALIDATION) if split in _VALIDATION else (split,)
    found = [file for name in names for file in files if file.stem == name]
    if not found:
        known = [file.stem for file in files]
        raise DataError(folder, None, f"has no split {split!r}, known are {known}")
    return found[:1]
