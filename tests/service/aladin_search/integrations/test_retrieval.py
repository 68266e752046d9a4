"""What the retrievers share: the same hits of an index, of its folder and of a service."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import aladin_search
from aladin_network.errors import ConfigError, InputError
from aladin_search.integrations.retrieval import Query, Retrieval

TEXT = "a red dog runs"


@pytest.fixture(scope="module")
def opened(index_folder: Path) -> Iterator[aladin_search.Index]:
    with aladin_search.open(index_folder) as index:
        yield index


@pytest.fixture(params=["index", "folder", "service"])
def place(
    request: pytest.FixtureRequest, opened: aladin_search.Index, index_folder: Path, url: str
) -> dict[str, Any]:
    """Each place where a search can be answered, as arguments of `Retrieval`."""
    places: dict[str, dict[str, Any]] = {
        "index": {"index": opened},
        "folder": {"index": str(index_folder)},
        "service": {"url": url + "/"},
    }
    return places[request.param]


@pytest.fixture
def retrieve(place: dict[str, Any]) -> Iterator[Callable[..., Retrieval]]:
    """Makes retrievals of one place, and closes them."""
    made: list[Retrieval] = []

    def make(**options: Any) -> Retrieval:
        made.append(Retrieval(**place, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def numbers(details: dict[str, Any]) -> dict[str, Any]:
    """The scores and ranks of a hit, in one level."""
    rows = {name: details[name] or {} for name in ("match", "align")}
    stages = {f"{stage}.{name}": row[name] for stage, row in rows.items() for name in row}
    names = ("rank", "score", "per_word", "probability", "match_probability")
    return stages | {name: details[name] for name in names}


def both(retrieval: Retrieval, *args: Any, **options: Any) -> list[Any]:
    """Search with and without an event loop, and check that the hits are the same."""

    async def find() -> list[Any]:
        try:
            return await retrieval.find_async(*args, **options)
        finally:
            await retrieval.close_async()

    found = retrieval.find(*args, **options)
    again = asyncio.run(find())
    assert [each.hit.id for each in again] == [each.hit.id for each in found]
    assert [each.photo for each in again] == [each.photo for each in found]
    for one, other in zip(found, again, strict=True):
        assert numbers(one.details) == pytest.approx(numbers(other.details), abs=1e-6)
        others = ("uri", "path", "photo_url", "thumbnail_url", "size_px", "target")
        assert [one.details[name] for name in others] == [other.details[name] for name in others]
    return found


def test_hits_are_those_of_the_route(retrieve: Callable[..., Retrieval], url: str) -> None:
    tests = {"number": {"gte": 1}}
    body = {"text": TEXT, "k": 4, "filter": tests, "explain": True}
    answer = httpx.post(f"{url}/v1/search/images", json=body).json()
    retrieval = retrieve(options={"explain": True})
    found = both(retrieval, Query(text=TEXT), 4, tests)
    assert [each.details["id"] for each in found] == [hit["id"] for hit in answer["hits"]]
    for each, hit in zip(found, answer["hits"], strict=True):
        assert each.metadata()["number"] == hit["metadata"]["number"]
        details = each.metadata()["aladin"]
        assert details["rank"] == hit["rank"]
        assert details["score"] == pytest.approx(hit["score"], abs=1e-6)
        for stage in ("match", "align"):
            assert details[stage] == pytest.approx(hit["stages"][stage], abs=1e-6)
        assert details["size_px"] == hit["size_px"]
        assert [word["token"] for word in details["evidence"]] == [
            word["token"] for word in hit["evidence"]
        ]
        assert details["evidence"][0]["score"] == pytest.approx(
            hit["evidence"][0]["score"], abs=1e-6
        )


def test_queries_are_words_photos_or_items(
    retrieve: Callable[..., Retrieval],
    image_ids: list[str],
    query_photo: Image.Image,
    tmp_path: Path,
) -> None:
    file = tmp_path / "photo.png"
    query_photo.save(file)
    retrieval = retrieve()
    by_path = both(retrieval, Query(text="", image=file), 6, {})
    by_bytes = both(retrieve(), Query(image=file.read_bytes()), 6, {})
    assert [each.hit.id for each in by_path] == [each.hit.id for each in by_bytes]
    by_item = both(retrieve(), Query(id=image_ids[0]), 6, {})
    assert {each.hit.id for each in by_item} == set(image_ids) - {image_ids[0]}
    with pytest.raises(InputError, match="exactly one of text, image and id, got text, id"):
        retrieval.find(Query(text=TEXT, id="a"), 3, {})
    with pytest.raises(InputError, match="got none"):
        retrieval.find(Query(), 3, {})


def test_texts_have_no_photos(retrieve: Callable[..., Retrieval]) -> None:
    found = both(retrieve(target="texts", photo_bytes=True), Query(text=TEXT), 3, {})
    assert len(found) == 3
    for each in found:
        assert each.hit.text
        assert each.photo is None
        assert (each.details["path"], each.details["photo_url"]) == (None, None)


@pytest.mark.parametrize("size_px", [16, None])
def test_photos_come_as_bytes_if_asked_for(
    retrieve: Callable[..., Retrieval], size_px: int | None
) -> None:
    retrieval = retrieve(photo_bytes=True, photo_px=size_px)
    found = both(retrieval, Query(text=TEXT), 6, {})
    for each in found:
        with Image.open(io.BytesIO(each.photo.data)) as picture:
            assert Image.MIME[picture.format or ""] == each.photo.media_type
            if size_px is None:
                assert list(picture.size) == each.details["size_px"]
            else:
                assert max(picture.size) == 16
    assert all(each.photo is None for each in both(retrieve(), Query(text=TEXT), 2, {}))


def test_links_lead_to_the_photos(opened: aladin_search.Index, url: str) -> None:
    service = Retrieval(url=url, photo_px=20)
    for each in both(service, Query(text=TEXT), 6, {}):
        assert each.details["path"] is None
        thumbnail = httpx.get(each.details["thumbnail_url"])
        with Image.open(io.BytesIO(thumbnail.content)) as picture:
            assert max(picture.size) == 20
        whole = httpx.get(each.details["photo_url"])
        with Image.open(io.BytesIO(whole.content)) as picture:
            assert list(picture.size) == each.details["size_px"]
        assert each.source == each.details["uri"]
    for each in both(Retrieval(index=opened), Query(text=TEXT), 6, {}):
        assert each.details["photo_url"] is None
        with Image.open(each.details["path"]) as picture:
            assert list(picture.size) == each.details["size_px"]
        assert each.source == each.details["path"]
    service.close()


def test_options_of_one_search_replace_those_of_all(opened: aladin_search.Index) -> None:
    retrieval = Retrieval(index=opened, options={"explain": True, "rerank": False})
    (one,) = retrieval.find(Query(text=TEXT), 1, {})
    assert one.details["evidence"]
    (other,) = retrieval.find(Query(text=TEXT), 1, {}, explain=False)
    assert other.details["evidence"] is None
    with pytest.raises(InputError, match=r"expected offset, candidates, .* got color"):
        retrieval.find(Query(text=TEXT), 1, {}, color="red")
    with pytest.raises(InputError, match=r"got k$"):
        Retrieval(index=opened, options={"k": 3})


def test_what_an_answer_lacks_is_logged(
    retrieve: Callable[..., Retrieval], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aladin_search"):
        assert retrieve().find(Query(text=TEXT), 3, {"colour": "red"}) == []
    assert "no item has a value in: colour" in caplog.text


def test_an_index_is_closed_by_whom_it_was_opened(
    opened: aladin_search.Index, index_folder: Path
) -> None:
    given = Retrieval(index=opened)
    given.close()
    assert len(opened.search(TEXT, k=2)) == 2
    own = Retrieval(index=index_folder)
    own.open()
    assert len(own.find(Query(text=TEXT), 2, {})) == 2
    own.close()
    assert len(own.find(Query(text=TEXT), 2, {})) == 2  # opened again
    own.close()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InputError, "expected either index or url, got neither"),
        ({"index": "a", "url": "http://a"}, InputError, "got both"),
        ({"url": "ftp://a"}, ConfigError, "expected a URL such as"),
        ({"index": "a", "target": "photos"}, InputError, "expected images or texts, got 'photos'"),
        ({"index": "a", "photo_px": 0}, InputError, "photo_px: expected at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Retrieval(**arguments)


def test_errors_of_a_search(retrieve: Callable[..., Retrieval]) -> None:
    with pytest.raises(aladin_search.Error, match=r"k: .*(at least|greater than or equal to) 1"):
        retrieve().find(Query(text=TEXT), 0, {})


def test_a_place_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(aladin_search.IndexNotReadyError):
        Retrieval(index=tmp_path).find(Query(text=TEXT), 1, {})
