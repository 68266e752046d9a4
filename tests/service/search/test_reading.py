"""Dates and places in the words of a search of a library, at the doors that answer it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import aladin_search
from aladin_index.building.builder import build_index
from aladin_index.format.skipped import write_follow_record
from aladin_index.generations.reader import open_index
from aladin_service.item_sources import image_items
from aladin_service.search.encoder import QueryEncoder
from aladin_service.settings import QueryLimits
from tests.service.commands.conftest import aladin, aladin_json

TEXT = "a red dog in Bern, July 2022"


@pytest.fixture(scope="module")
def library(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index that follows a folder: two photos of Bern, one of them of July 2022, and another."""
    root = tmp_path_factory.mktemp("library")
    dates = {
        "Bern/a": "2022-07-04T10:00:00",
        "Bern/old": "2019-07-04T10:00:00",
        "Paris/x/July 2022": None,
    }
    for number, (name, taken_at) in enumerate(dates.items()):
        photo = root / "photos" / f"{name}.png"
        photo.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data_file.parent / f"photo-{number}.png", photo)
        if taken_at is not None:
            photo.with_suffix(".json").write_text(json.dumps({"taken_at": taken_at}))
    build_index(tiny_checkpoint, root / "index", image_items(root / "photos", None), None)
    write_follow_record(root / "index", (), {})
    return root / "index"


@pytest.fixture
def index(library: Path) -> Iterator[aladin_search.Index]:
    with aladin_search.open(library) as opened:
        yield opened


def read(hits: aladin_search.Hits) -> list[tuple[str, dict[str, Any]]]:
    return [(each.words, each.filter) for each in hits.answer.read]


def test_photos_of_a_folder_have_its_names_as_a_field(index: aladin_search.Index) -> None:
    folders = {item.id: item.metadata.get("folder") for item in index.items()}
    assert folders == {
        "Bern/a.png": ["Bern"],
        "Bern/old.png": ["Bern"],
        "Paris/x/July 2022.png": ["Paris", "x"],
    }


def test_what_is_read_filters_and_is_told_and_can_be_taken_off(index: aladin_search.Index) -> None:
    july = ("July 2022", {"taken_at": {"gte": "2022-07", "lt": "2022-08"}})
    hits = index.search(TEXT)
    assert (hits.ids, read(hits)) == (["Bern/a.png"], [("in Bern", {"folder": "Bern"}), july])
    hits = index.search(TEXT, unread=["July 2022"])
    assert sorted(hits.ids) == ["Bern/a.png", "Bern/old.png"]
    assert read(hits) == [("in Bern", {"folder": "Bern"})]
    # Beside the request's own filter.
    assert index.search(TEXT, filter={"taken_at": {"lt": "2020"}}).ids == []
    for hits in (
        index.search(TEXT, unread=["in Bern", "july 2022"]),
        index.search(TEXT, read_words=False),
    ):
        assert (len(hits), read(hits)) == (3, [])
    # The name of a file is not read, and neither are the terms of several.
    hits = index.search("July 2022")
    assert (hits.ids[0], len(hits), read(hits)) == ("Paris/x/July 2022.png", 3, [])
    assert read(index.search(all=[TEXT])) == []


def test_the_rest_is_searched_for_and_evidence_is_of_the_words_as_typed(
    index: aladin_search.Index,
) -> None:
    text = "in Bern, a red dog"
    [hit, *_] = index.search(text, explain=True)
    [same, *_] = index.search("a red dog", explain=True, filter={"folder": "Bern"})
    assert (hit.id, hit.score) == (same.id, same.score)
    assert hit.evidence and same.evidence
    assert [(e.start - 9, e.end - 9, e.score) for e in hit.evidence] == [
        (e.start, e.end, e.score) for e in same.evidence
    ]
    assert all(text[e.start : e.end].strip() for e in hit.evidence)


def test_the_answer_tells_the_words_that_are_searched_for_and_their_weight(library: Path) -> None:
    answer = aladin_json("search", library, "in Bern, a red dog")
    assert (answer["searched"], answer["lexical"]) == ("a red dog", pytest.approx(0.5 / 3))
    answer = aladin_json("search", library, "a red dog", "--lexical", "1")
    assert (answer["searched"], answer["lexical"]) == (None, 1)


def test_other_indexes_read_only_if_they_are_asked_to(
    library: Path, tmp_path: Path, index: aladin_search.Index
) -> None:
    plain = Path(shutil.copytree(library, tmp_path / "plain"))
    (plain / "followed.json").unlink()
    with aladin_search.open(plain) as other:
        assert (len(other.search(TEXT)), read(other.search(TEXT))) == (3, [])
        assert read(other.search(TEXT, read_words=True)) == read(index.search(TEXT))


def test_the_command_line_says_what_was_read(library: Path) -> None:
    *_, last = aladin("search", library, TEXT).stdout.splitlines()
    assert last.startswith("'July 2022' was read as a filter, {\"taken_at\": ")
    assert last.endswith("--unread 'July 2022' leaves the words")
    answer = aladin_json("search", library, TEXT, "--unread", "July 2022", "--unread", "in bern")
    assert (answer["read"], len(answer["hits"])) == ([], 3)
    assert aladin_json("search", library, TEXT, "--no-read-words")["read"] == []
    said = aladin("search", library, "a dog in Bern, May 2020").stdout.splitlines()
    assert said[0] == "nothing passes the filter" and "--unread 'May 2020'" in said[-1]


def test_words_of_a_script_that_the_model_does_not_have_are_warned_of(library: Path) -> None:
    assert aladin_json("search", library, "две собаки")["warnings"] == ["language"]
    assert aladin_json("search", library, "a red dog")["warnings"] == []
    assert "vocabulary does not have" in aladin("search", library, "две собаки").stdout


def test_the_words_of_a_library_are_read_when_it_is_opened(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_index(library)) as opened, closing(QueryEncoder(QueryLimits())) as encoder:
        assert opened.images is not None
        encoder.warm_up(opened)
        for thread in threading.enumerate():
            if thread.name == "words":
                thread.join()
        monkeypatch.setattr(opened.images.items.words, "_read", None)
        assert opened.collection("images").find_words("July 2022").name == "july 2022"
