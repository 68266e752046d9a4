"""What collections are called, and which are an index's own."""

from __future__ import annotations

import pytest

from aladin_index.engines.client import PARTS, CollectionNames


def test_a_name_tells_its_generation() -> None:
    names = CollectionNames("photos")
    assert [names.of(3, part) for part in PARTS] == [
        "photos_000003_record",
        "photos_000003_images",
        "photos_000003_texts",
    ]
    for generation in (1, 999_999, 1_000_000):
        assert names.generation_of(names.of(generation, "images")) == generation


@pytest.mark.parametrize(
    "foreign",
    [
        "photos",
        "photos_000001",
        "photos_000001_other",
        "photos_00001_images",
        "photos_000001_images_2",
        "photos_2_000001_images",
        "my_photos_000001_images",
    ],
)
def test_collections_of_others_are_left_alone(foreign: str) -> None:
    assert CollectionNames("photos").generation_of(foreign) is None


def test_generations_are_listed_once_and_in_order() -> None:
    names = CollectionNames("a")
    collections = [names.of(10, "texts"), "b_000001_images", names.of(2, "record")]
    assert names.generations_of([*collections, names.of(2, "images")]) == [2, 10]
