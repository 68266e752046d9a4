"""`aladin_search`: an index is built, searched, changed and evaluated from Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import aladin_search
from aladin_network.errors import UnknownItemError


@pytest.fixture(scope="module")
def index(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[aladin_search.Index]:
    """An index of all photos and captions of `data_file`, built by the library; not changed."""
    out = tmp_path_factory.mktemp("built") / "index"
    with aladin_search.build(data_file, data_file, model=tiny_checkpoint, out=out) as opened:
        yield opened


@pytest.fixture
def changed(index: aladin_search.Index, tmp_path: Path) -> Iterator[aladin_search.Index]:
    """A copy of it, to be changed."""
    shutil.copytree(index.path, tmp_path / "index")
    with aladin_search.open(tmp_path / "index") as opened:
        yield opened


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """A folder with two further photos, one of which is damaged."""
    folder = tmp_path / "more"
    folder.mkdir()
    Image.new("RGB", (40, 30), (50, 100, 205)).save(folder / "new.png")
    (folder / "bad.png").write_bytes(b"no picture")
    return folder


def test_photos_of_any_form_find_the_same(
    index: aladin_search.Index, query_photo: Image.Image, tmp_path: Path
) -> None:
    file = tmp_path / "query.png"
    query_photo.save(file)
    by_path = index.search(image=file, k=4)
    assert len(by_path) == 4
    assert all("#" in item_id for item_id in by_path.ids)  # captions
    for form in (str(file), file.read_bytes(), query_photo):
        assert index.search(image=form, k=4).ids == by_path.ids
    photos = index.search(image=file, target="images", k=4)
    assert set(photos.ids).isdisjoint(by_path.ids)


def test_items_are_listed_without_a_query(index: aladin_search.Index, image_ids: list[str]) -> None:
    assert index.counts == {"images": 6, "texts": 12}
    assert repr(index).endswith("index': 6 images, 12 texts>")
    assert [item.id for item in index.items()] == image_ids[::-1]
    by_number = list(index.items(sort="number", order="asc", filter={"number": {"gte": 2}}))
    assert [item.metadata["number"] for item in by_number] == [2, 3, 4, 5]
    assert (by_number[0].uri is None, by_number[0].size_px) == (False, (64, 40))
    captions = list(index.items("texts"))
    assert len(captions) == 12
    assert all(item.text and item.uri is None and item.size_px is None for item in captions)


def test_an_index_of_photos_alone_describes_its_fields_and_looks_for_photos(
    tiny_checkpoint: Path, more: Path, query_photo: Image.Image
) -> None:
    file = more / "photos.jsonl"
    metadata = {"day": "2024-05-31", "seen": True, "size": [1, 2]}
    lines = [{"id": "a", "image": "new.png", "metadata": metadata}]
    lines.append({"id": "b", "image": "bad.png", "metadata": {}})
    file.write_text("\n".join(map(json.dumps, lines)))
    with aladin_search.build(file, model=tiny_checkpoint, out=more / "index") as index:
        assert index.fields() == [
            aladin_search.Field(name=name, kind=kind, least=least, greatest=greatest, counts=counts)
            for name, kind, least, greatest, counts in (
                ("day", "text", "2024-05-31", "2024-05-31", {"2024-05-31": 1}),
                ("seen", "bool", True, True, {True: 1}),
                ("size", "number", 1, 2, {1: 1, 2: 1}),
            )
        ]
        assert index.fields()[1].least is True
        assert list(index.skipped) == ["b"] and "not an image" in index.skipped["b"]
        assert index.search(image=query_photo).ids == ["a"]
        for call in (index.fields, lambda target: index.search("a", target=target)):
            with pytest.raises(aladin_search.NoSuchTargetError):
                call("texts")


def test_terms_are_described_as_they_are_given(
    index: aladin_search.Index, image_ids: list[str], query_photo: Image.Image
) -> None:
    others = index.search(id=image_ids[0], k=10).ids
    assert set(others) == set(image_ids[1:])
    photo = aladin_search.Term(image=query_photo, weight=0.5)
    like = [image_ids[1], image_ids[1]]
    hits = index.search("a red dog", all=[photo], not_=["a car"], like=like)
    assert hits.query == f"'a red dog', a photo, not 'a car', like item {image_ids[1]!r}"
    assert [(term.role, term.text) for term in hits.answer.terms or []] == [
        ("all", "a red dog"),
        ("all", None),
        ("not", "a car"),
        ("like", None),
    ]
    # Without words, what is asked for is in the terms alone.
    alone = index.search(like=[image_ids[1]], k=3)
    assert image_ids[1] not in alone.ids
    assert len(alone) == 3


def test_options_of_a_search_are_those_of_the_service(index: aladin_search.Index) -> None:
    assert index.search("dog", filter={"number": {"gte": 4}}, k=3).answer.reranked
    assert {hit.metadata["number"] for hit in index.search("dog", filter={"number": 4})} == {4}
    assert not index.search("dog", rerank=False).answer.reranked
    (hit,) = index.search("motorcycle", lexical=1, k=1)
    found = [(each.field, each.words) for each in hit.stages.lexical or ()]
    assert found == [("text", ["motorcycle"])]


def test_a_box_is_searched_for_by_a_photo_an_item_and_a_term(
    index: aladin_search.Index, data_file: Path
) -> None:
    box = (0.0, 0.25, 0.5, 1.0)
    photo = data_file.parent / "photo-2.png"
    by_file = index.search(image=photo, box=box, explain=True)
    assert by_file[0].id == "plain"
    assert by_file[0].found == pytest.approx(box, abs=1e-3)
    assert by_file[0].region_evidence
    assert by_file.query.startswith("a part of the photo")
    by_id = index.search(id="plain", box=box)
    assert by_id.ids == by_file.ids[1:]
    assert "a part of item 'plain'" in repr(by_id)
    terms = index.search("a dog", all=[aladin_search.Term(id="plain", box=box)])
    assert terms.answer.terms is not None
    assert terms.answer.terms[1].box == box


def test_added_photos_are_found_and_deleted_ones_are_not(
    changed: aladin_search.Index, more: Path, image_ids: list[str]
) -> None:
    added = changed.add(more)["images"]
    assert (added.added, added.replaced, added.kept) == (1, 0, 0)
    assert [item.id for item in added.skipped] == ["bad.png"]
    assert changed.counts["images"] == 7
    assert "new.png" in changed.search("dog", k=10).ids
    with pytest.raises(aladin_search.DuplicateItemError):
        changed.add(more)
    assert changed.add(more, on_duplicate="skip")["images"].kept == 1
    changed.delete(image_ids[-1])
    assert [item.id for item in changed.items()] == ["new.png", *image_ids[-2::-1]]

    assert changed.photo("dogs/red#1").size == (48, 40)
    small = changed.thumbnail("dogs/red#1", size_px=16)
    assert small is not None and small.startswith(b"\xff\xd8")  # JPEG
    caption = changed.search("dog", target="texts")[0].id
    (more / "new.png").unlink()
    for item_id in (caption, "new.png"):
        assert changed.thumbnail(item_id) is None
        with pytest.raises(aladin_search.InputError):
            changed.photo(item_id)

    assert changed.delete("new.png", "plain") == 2
    assert changed.counts["images"] == 4
    with pytest.raises(aladin_search.UnknownItemError):
        changed.delete("new.png")
    assert changed.delete("new.png", ignore_missing=True) == 0
    assert {"new.png", "plain"}.isdisjoint(changed.search("dog", k=10).ids)


def test_a_hit_that_is_deleted_meanwhile_has_no_photo(
    index: aladin_search.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = index.search("a red dog", k=2).ids
    photo_file = index.photo_file

    def without_first(item_id: str) -> Any:
        if item_id == first:
            raise UnknownItemError("images", item_id)
        return photo_file(item_id)

    monkeypatch.setattr(index, "photo_file", without_first)
    hits = index.search("a red dog", k=2)
    assert hits.ids == [first, second]
    assert hits._repr_html_().count("<img") == 1


def test_an_index_is_evaluated(index: aladin_search.Index, data_file: Path) -> None:
    metrics = index.evaluate(data_file, split=None)
    assert set(metrics) == {"matching", "alignment", "fused", "two_stage"}
    assert metrics["two_stage"].text_to_image.r10 == 100  # six photos
    alone = aladin_search.evaluate(index.path / "model", data_file, split=None)
    assert alone["matching"] == metrics["matching"]


def test_a_recipe_is_trained(data_file: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["split"] = "train" if number < 4 else "val"
        line["image"] = str(data_file.with_name(line["image"]))
    source = tmp_path / "data.jsonl"
    source.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    epochs = {f"stage.{stage}.epochs": 1 for stage in ("teacher", "student")}
    settings = {"data.source": source, **epochs, "precision": "float32"}
    checkpoint = aladin_search.train("demo", tmp_path / "run", settings=settings)
    assert checkpoint.parent == tmp_path / "run"
    with aladin_search.build(source, model=checkpoint, out=tmp_path / "index") as index:
        assert len(index.search("a red dog")) == 6
    known = aladin_search.recipes()
    assert "flickr8k" in known and known["demo"].startswith("The demo")


BOX, TERM = (0, 0, 1, 1), aladin_search.Term()
REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda index: index.search("a", id="b"), "expected exactly one of"),
    (lambda index: index.search(not_=["a"]), "expected a term in all or like beside it, got none"),
    (lambda index: index.search(all=[TERM]), "expected exactly one of"),
    (lambda index: index.search("a", not_=["b"], lexical=1), "lexical: expected a query of one te"),
    (lambda index: index.search(id="plain", lexical=1), "lexical: expected a query of one text"),
    (lambda index: index.search("a", like=["nobody"]), "nobody"),
    (lambda index: index.search("a", k=0), "k: expected at least 1, got 0"),
    (lambda index: index.search("a", box=BOX), "box"),
    (lambda index: index.search(all=["a"], box=BOX), "box"),
    (lambda index: index.search(id="plain#0", box=BOX), "box"),
    (lambda index: index.search(box=BOX), "exactly one of"),
    (lambda index: index.search(id="plain", box=(1, 0, 0, 1)), "expected x0 < x1"),
    (lambda index: index.search("x", target="imgs"), "target: expected one of 'images'"),
    (lambda index: index.items("imgs"), "target: expected one of 'images', 'texts'"),
    (lambda index: index.items(order="up"), "order: expected one of 'desc', 'asc', got 'up'"),
    (lambda index: next(index.items(filter={"number": {"over": 2}})), "filter"),
    (lambda index: index.fields(["images"]), "target: expected one of 'images', 'texts'"),
    (lambda index: index.add(), "expected images, texts or both"),
    (lambda index: index.add("x.jsonl", on_duplicate="keep"), "on_duplicate: expected one of"),
    (lambda index: index.delete("a", target="photos"), "target: .* got 'photos'"),
    (lambda index: aladin_search.open(index.path, device="gpu"), "device: .* got 'gpu'"),
    (lambda index: aladin_search.open(index.path / "model"), "no index here"),
    (lambda index: aladin_search.build(index.path, out="y", device=0), "device: .* got 0"),
    (lambda _: aladin_search.train("flickr8", "run"), "did you mean 'flickr8k'"),
    (lambda _: aladin_search.train("demo", "new", settings={"stage.teacher.epoch": 1}), "epoch"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_a_mistake_is_an_error_that_names_it(
    index: aladin_search.Index, call: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(aladin_search.Error, match=message):
        call(index)
