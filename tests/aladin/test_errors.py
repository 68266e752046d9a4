"""The tree of errors: what callers catch, and what messages say."""

from __future__ import annotations

import pytest

from aladin_network import errors


def test_every_error_is_an_aladin_error() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [each for each in classes if issubclass(each, Exception)]
    assert len(ours) > 15
    assert all(issubclass(each, errors.AladinError) for each in ours)


def test_front_doors_tell_the_callers_mistakes_by_their_base() -> None:
    for kind in (errors.ImageTooLargeError, errors.TextTooLongError, errors.ShapeError):
        assert issubclass(kind, errors.InputError)
    assert issubclass(errors.ImageTooLargeError, errors.ImageError)
    assert not issubclass(errors.CheckpointError, errors.InputError)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**5,
        b"\xff" * 10**5,
        [["y" * 10**4] * 10] * 10,
        {"a" * 10**5: "b" * 10**5},
        10**900,
    ],
)
def test_messages_about_data_are_short_whatever_the_data(value: object) -> None:
    """Both ends of a text are shown, and no value is written out as a whole."""
    assert len(errors.brief(value)) <= 160
    raised = [
        errors.DataError("a.jsonl", 3, f"got {value!r}, expected a text"),
        errors.ImageError("a.jpg", f"got {value!r}, expected a text"),
        errors.UnknownItemError("images", str(value)),
        errors.DuplicateItemError("images", str(value)),
    ]
    for error in raised:
        assert len(str(error)) < 500
    assert str(raised[0]).startswith("a.jsonl:3: got ")
    assert str(raised[0]).endswith(", expected a text")


def test_short_values_are_shown_as_they_are() -> None:
    for value in ("a b", "it's", 7, None, ["a", 2], {"a": 1.5}, b"\xff", "\n"):
        assert errors.brief(value) == repr(value)
    assert errors.brief("a" * 50 + "b" * 50) == repr("a" * 37 + "..." + "b" * 38)
