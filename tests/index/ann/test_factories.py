import pytest

from aladin_index.ann.first_stage_build import ann_options, factories_to_try, fitting_factories
from aladin_network.errors import ConfigError

MILLION = 1_000_000


def test_the_memory_of_each_kind_worked_by_hand() -> None:
    # 1,024 lists of 256 float32 values each, and of a vector its codes and its 8 bytes of id.
    centroids = 1024 * 256 * 4
    assert [(each.factory, each.memory_bytes) for each in ann_options(MILLION, 256)] == [
        ("IVF1024,PQ256x4fs", centroids + MILLION * (128 + 8)),
        ("IVF1024,PQ128x4fs", centroids + MILLION * (64 + 8)),
        ("IVF1024,PQ64x4fs", centroids + MILLION * (32 + 8)),
        ("IVF1024,SQ8", centroids + MILLION * (256 + 8)),
        ("Flat", MILLION * 1024),
    ]


@pytest.mark.parametrize(
    ("count", "budget", "recall", "factory"),
    [
        (1, None, 0.99, "Flat"),
        (50_000, None, 0.99, "Flat"),
        (50_001, None, 0.99, "IVF256,PQ256x4fs"),
        (MILLION, None, 0.99, "IVF1024,PQ256x4fs"),
        (20 * MILLION, None, 0.99, "IVF4096,PQ256x4fs"),
        (50_000, 51_200_000, 0.99, "Flat"),
        (50_000, 51_199_999, 0.99, "IVF256,PQ256x4fs"),
        (MILLION, 137_048_576, 0.99, "IVF1024,PQ256x4fs"),
        (MILLION, 137_048_575, 0.99, "IVF1024,PQ128x4fs"),
        (MILLION, 41_048_576, 0.9, "IVF1024,PQ64x4fs"),
        (MILLION, None, 0.9995, "IVF1024,SQ8"),
        (MILLION, None, 1.0, "Flat"),
    ],
)
def test_the_fastest_that_fits_and_finds_enough_is_chosen(
    count: int, budget: int | None, recall: float, factory: str
) -> None:
    assert fitting_factories(count, 256, budget, recall)[0] == factory


def test_what_is_tried_next_finds_more_and_fits() -> None:
    assert fitting_factories(MILLION, 256, None, 0.99) == [
        "IVF1024,PQ256x4fs",
        "IVF1024,SQ8",
        "Flat",
    ]
    assert fitting_factories(MILLION, 256, 300_000_000, 0.99) == [
        "IVF1024,PQ256x4fs",
        "IVF1024,SQ8",
    ]
    assert fitting_factories(MILLION, 256, 100_000_000, 0.9) == ["IVF1024,PQ128x4fs"]


@pytest.mark.parametrize(
    ("count", "budget", "recall", "least"),
    [
        (MILLION, 73_048_575, 0.99, "73,048,576"),
        (MILLION, 1_000_000_000, 1.0, "1,024,000,000"),
        (999, 1, 0.5, "1,022,976"),  # too few to train anything on
    ],
)
def test_a_budget_that_nothing_meets_names_the_least(
    count: int, budget: int, recall: float, least: str
) -> None:
    with pytest.raises(ConfigError, match=f"take at least {least} bytes, got {budget:,}"):
        fitting_factories(count, 256, budget, recall)


def test_codes_need_a_size_that_divides() -> None:
    assert [each.factory for each in ann_options(MILLION, 6)] == [
        "IVF1024,PQ6x4fs",
        "IVF1024,SQ8",
        "Flat",
    ]


@pytest.mark.parametrize(
    ("ann", "factories"),
    [
        ("exact", ["Flat"]),
        ("exact-align", ["Flat"]),
        ("OPQ16,IVF64,PQ16", ["OPQ16,IVF64,PQ16"]),
        ("auto", fitting_factories(MILLION, 256, None, 0.99)),
    ],
)
def test_a_description_given_by_hand_is_taken(ann: str, factories: list[str]) -> None:
    assert factories_to_try(ann, MILLION, 256, None, 0.99) == factories
