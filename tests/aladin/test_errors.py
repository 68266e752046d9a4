"""The tree of errors: what callers catch, and what messages say."""

from __future__ import annotations

import pytest

from aladin_network import errors


def test_every_error_is_ours_and_those_of_inputs_have_a_base() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [each for each in classes if issubclass(each, Exception)]
    assert len(ours) > 15
    assert all(issubclass(each, errors.AladinError) for each in ours)
    for kind in (errors.ImageTooLargeError, errors.TextTooLongError, errors.ShapeError):
        assert issubclass(kind, errors.InputError)
    assert issubclass(errors.ImageTooLargeError, errors.ImageError)
    assert not issubclass(errors.CheckpointError, errors.InputError)


@pytest.mark.parametrize(
    "value",
    ["x" * 10**5, b"\xff" * 10**5, [["y" * 10**4] * 10] * 10, {"a" * 10**5: "b"}, 10**900],
    ids=lambda value: type(value).__name__,
)
def test_messages_about_data_are_short_and_show_both_ends(value: object) -> None:
    assert len(errors.brief(value)) <= 160
    error = str(errors.DataError("a.jsonl", 3, f"got {value!r}, expected a text"))
    assert error.startswith("a.jsonl:3: got ") and error.endswith(", expected a text")
    for each in (
        error,
        errors.ImageError("a.jpg", f"got {value!r}, expected a text"),
        errors.UnknownItemError("images", str(value)),
        errors.DuplicateItemError("images", str(value)),
    ):
        assert len(str(each)) < 500


def test_short_values_are_shown_as_they_are() -> None:
    for value in ("a b", "it's", 7, None, ["a", 2], {"a": 1.5}, b"\xff", "\n"):
        assert errors.brief(value) == repr(value)
    assert errors.brief("a" * 50 + "b" * 50) == repr("a" * 37 + "..." + "b" * 38)
