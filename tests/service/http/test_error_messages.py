"""Messages of errors, whatever was sent, and their shapes for OpenAI's and Cohere's clients."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from aladin_service.http.conventions import conventional_body
from aladin_service.http.error_responses import (
    cut_message,
    describe_faults,
    invalid_input,
    without_paths,
)


def fault(name: str, kind: str = "missing") -> dict[str, Any]:
    """A fault as pydantic describes it."""
    return {"type": kind, "loc": ("items", 3, name), "msg": "Field required"}


def test_ten_faults_are_described_and_the_others_counted() -> None:
    ten = [fault(f"f{number}") for number in range(10)]
    assert describe_faults(ten).count("; ") == 9
    assert describe_faults([*ten, fault("g")]).endswith("items.3.f9: Field required; and 1 more")
    assert describe_faults([fault("g")] * 5000).endswith("; and 4990 more")


@pytest.mark.parametrize(("count", "says"), [(1000, "and 990 more"), (1001, "1001 fields")])
def test_very_many_faults_are_counted_alone(count: int, says: str) -> None:
    class Numbers(BaseModel):
        values: list[int]

    with pytest.raises(ValidationError) as found:
        Numbers.model_validate({"values": ["a"] * count})
    assert says in str(invalid_input(found.value))


def test_long_names_and_messages_are_cut() -> None:
    for name, shown in (("n" * 100, "n" * 100), ("n" * 101, "n" * 99 + "…")):
        assert (
            describe_faults([fault(name, "extra_forbidden")]) == f"items.3.{shown}: unknown field"
        )
    assert cut_message("m" * 2000) == "m" * 2000
    cut = cut_message("no item '" + "i" * 10_000 + "' among the images")
    assert (len(cut), cut[:12], cut[-21:]) == (2000, "no item 'iii", "iii' among the images")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("/home/me/up/broken.jpg: not an image", "not an image"),
        ("/home/me/my: photos/a b.jpg: damaged or cut short (x)", "damaged or cut short (x)"),
        ("/data/0.tar@51200: expected 9 bytes, got 3", "expected 9 bytes, got 3"),
        ("cannot read '/home/me/x y.npz': cut short", "cannot read 'x y.npz': cut short"),
        ("open failed (/home/me/x.npz@12)", "open failed (x.npz@12)"),
        ("sub/a.jpg: 0 bytes, not an image", "sub/a.jpg: 0 bytes, not an image"),
        ("12 bytes / pixel, and/or http://host/a", "12 bytes / pixel, and/or http://host/a"),
    ],
)
def test_absolute_paths_are_removed(reason: str, shown: str) -> None:
    assert without_paths(reason) == shown


@pytest.mark.parametrize(
    ("status", "message", "kind", "param"),
    [
        (422, "input[0].image: not a string", "invalid_request_error", "input[0].image"),
        (422, "Invalid JSON: EOF", "invalid_request_error", None),
        (401, "key: invalid", "authentication_error", None),
        (403, "this requires a scope", "permission_error", None),
        (429, "too many requests", "rate_limit_error", None),
        (503, "no index is live", "server_error", None),
    ],
)
def test_openai_s_errors_have_its_types(
    status: int, message: str, kind: str, param: str | None
) -> None:
    code = "invalid_field" if status == 422 else "other"
    error = {"message": message, "type": kind, "param": param, "code": code}
    assert conventional_body("/v1/models/a/b\nc", status, code, message, "r") == {"error": error}
    for path in ("/v1/search/images", "/v1/modelsx", "/v1/embeddings/", "/v3/rerank", "", "/"):
        assert conventional_body(path, status, code, message, "r") is None
