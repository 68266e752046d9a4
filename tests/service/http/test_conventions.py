"""Errors in the shapes of OpenAI and Cohere."""

from __future__ import annotations

import pytest

from aladin_service.http.conventions import conventional_body


@pytest.mark.parametrize(
    ("status", "code", "message", "kind", "param"),
    [
        (422, "invalid_field", "input[3]: the text is empty", "invalid_request_error", "input[3]"),
        (
            422,
            "invalid_field",
            "input[0].image: not a string",
            "invalid_request_error",
            "input[0].image",
        ),
        (422, "invalid_field", "dimensions: expected 4", "invalid_request_error", "dimensions"),
        (422, "invalid_field", "Invalid JSON: EOF", "invalid_request_error", None),
        (413, "body_too_large", "the body exceeds 3 bytes", "invalid_request_error", None),
        (401, "unauthorized", "key: invalid", "authentication_error", None),
        (403, "missing_scope", "this requires a scope", "permission_error", None),
        (429, "overloaded", "too many requests", "rate_limit_error", None),
        (503, "index_not_ready", "no index is live", "server_error", None),
    ],
)
def test_openai(status: int, code: str, message: str, kind: str, param: str | None) -> None:
    for path in ("/v1/embeddings", "/v1/models", "/v1/models/a/b\nc"):
        assert conventional_body(path, status, code, message, "r") == {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }


def test_cohere_and_all_other_routes() -> None:
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        body = conventional_body(path, 422, "invalid_field", "top_n: too small", "r1")
        assert body == {"id": "r1", "message": "top_n: too small"}
    for path in ("/v1/search/images", "/v1/modelsx", "/v1/embeddings/", "/v3/rerank", "", "/"):
        assert conventional_body(path, 422, "invalid_field", "k: too large", "r1") is None
