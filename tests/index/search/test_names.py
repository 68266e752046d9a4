"""Names of files in a search: their places among the hits, and what is on by default."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.format.skipped import write_follow_record
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import read_model_id

MakeItems = Callable[..., ItemBatch]
NAMES = {
    **{f"p{n}": f"2019/Camera/IMG_{n:04d}.JPG" for n in range(40)},
    **{f"q{n}": f"2022/Bern/zanzibar {n}.jpg" for n in range(8)},
    "q8": "2022/Bern/Zanzibar.png",
    **{f"r{n}": f"2022/Bern/holiday {n}.jpg" for n in range(11)},
}


def named(new: ItemBatch, names: list[str]) -> ItemBatch:
    items = [
        item._replace(uri=name, text=None) for item, name in zip(new.items, names, strict=True)
    ]
    return replace(new, items=items)


@pytest.fixture(scope="module")
def index_folder(
    tmp_path_factory: pytest.TempPathFactory, write_made_up: Callable[..., int], made_up: MakeItems
) -> Path:
    root = tmp_path_factory.mktemp("names") / "index"
    folders = [name.split("/")[:-1] for name in NAMES.values()]
    taken = [f"{name[:4]}-07-0{1 + n % 9}T10:00:00" for n, name in enumerate(NAMES.values())]
    new = made_up([*NAMES], folder=folders, taken_at=taken)
    write_made_up(root, images=named(new, [*NAMES.values()]), texts=made_up(["t"]))
    return root


def ask(index: SearchIndex, text: str, **options: Any) -> SearchAnswer:
    searcher = TwoStageSearcher(index)
    query = searcher.stored_query("t")._replace(text=text, is_stored=False)
    return searcher.search(query, "images", SearchOptions(**{"k": 12, **options}))


def first(answer: SearchAnswer, count: int) -> list[str]:
    return [hit.id for hit in answer.hits[:count]]


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize("weight", [0.01, 1.0])
def test_a_name_is_first_and_its_parts_follow_whatever_the_weight(
    index_folder: Path, weight: float, rerank: bool
) -> None:
    options: dict[str, Any] = {"lexical": weight, "rerank": rerank, "candidates": 5}
    with closing(open_index(index_folder)) as index:
        for n in range(0, 40, 13):
            answer = ask(index, f"IMG_{n:04d}", **options)
            assert first(answer, 1) == [f"p{n}"]
            assert answer.hits[0].stages.lexical is not None
            [found] = answer.hits[0].stages.lexical
            assert (found.field, found.words) == ("uri", [f"img {n:04d}"])
        answer = ask(index, "zanzibar", **options)
        assert first(answer, 1) == ["q8"]
        assert set(first(answer, 9)[1:]) == {f"q{n}" for n in range(8)}
        # A part of more names than ten places none of them; they keep their order.
        assert first(ask(index, "holida", **options), 12) == first(
            ask(index, "holida", rerank=rerank, candidates=5, lexical=0), 12
        )
        # One with digits is no word of a picture: all that have it come first.
        answer = ask(index, "IMG_001", **options)
        assert set(first(answer, 10)) == {f"p{n}" for n in range(10, 20)}
        assert {hit.id[0] for hit in ask(index, "IMG_00", **options).hits} == {"p"}
        # Of those that pass a filter, they are few.
        some = {"filter": {"taken_at": {"lt": "2022-07-03"}}}
        answer = ask(index, "holida", **options, **some)
        is_named = ["holiday" in (hit.uri or "") for hit in answer.hits]
        assert any(is_named) and is_named == sorted(is_named, reverse=True)


def test_words_of_names_count_by_default_in_an_index_that_follows_folders(
    index_folder: Path,
) -> None:
    with closing(open_index(index_folder)) as index:
        plain = [hit.id for hit in ask(index, "IMG_0007").hits]
        assert not index.follows_folders
        assert plain == first(ask(index, "IMG_0007", lexical=0), 12) and plain[0] != "p7"
        write_follow_record(index_folder, (), {})
        try:
            assert index.follows_folders
            assert first(ask(index, "IMG_0007"), 1) == ["p7"]
            assert first(ask(index, "IMG_0007", lexical=0), 12) == plain
            # What names nothing is answered as without words.
            answer = ask(index, "a dog")
            assert answer.hits == ask(index, "a dog", lexical=0).hits
            # Neither a stored text nor several terms are refused.
            searcher = TwoStageSearcher(index)
            stored = searcher.stored_query("t")
            assert searcher.search(stored, "images").hits[0].stages.lexical is None
            joined = (stored._replace(role="all"), stored._replace(role="not"))
            assert searcher.search(joined, "images").terms is not None
        finally:
            (index_folder / "followed.json").unlink()


def test_words_name_the_folders_and_years_that_there_are(
    index_folder: Path, made_up: MakeItems
) -> None:
    with closing(open_index(index_folder)) as index:
        known = index.known_values("images")
        assert known.years == range(2019, 2023)
        assert known.places == {
            n.lower(): ("folder", n) for n in ("2019", "2022", "Bern", "Camera")
        }
        assert index.known_values("texts").places == {}
        model_id = read_model_id(index_folder / "model")
        with closing(ChangesWriter(index_folder, model_id)) as writer:
            dates = ["2025-01-01T00:00:00"]
            added = made_up(["new"], folder=[["St. Gallen"]], taken_at=dates, city=["Wil"])
            writer.add("images", added, "error")
            known = index.known_values("images")
            assert known.years == range(2019, 2026)
            assert known.places["st gallen"] == ("folder", "St. Gallen")
            assert known.places["wil"] == ("city", "Wil")
            assert known.places["bern"] == ("folder", "Bern")
