"""What collections are called, and which are an index's own."""

from __future__ import annotations

import pytest

from aladin_index.engines.milvus import PARTS, collection_name, generations_of


def test_a_name_tells_its_generation() -> None:
    assert [collection_name("photos", 3, part) for part in PARTS] == [
        "photos_000003_record",
        "photos_000003_images",
        "photos_000003_texts",
    ]
    for generation in (1, 999_999, 1_000_000):
        name = collection_name("photos", generation, "images")
        assert generations_of("photos", [name]) == [generation]


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
    assert generations_of("photos", [foreign]) == []


def test_generations_are_listed_once_and_in_order() -> None:
    collections = ["a_000010_texts", "b_000001_images", "a_000002_record", "a_000002_images"]
    assert generations_of("a", collections) == [2, 10]
