"""Pages of other sites that may use the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

FRIEND = "https://friend.example"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


async def test_an_allowed_page_asks_before_it_has_a_key_and_then_reads(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(host="0.0.0.0", keys_file=keys_file, cors_origins=(FRIEND,)) as client:
        asked = await client.options("/v1/search/images", headers={"origin": FRIEND} | PREFLIGHT)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == FRIEND
        assert "POST" in asked.headers["access-control-allow-methods"].split(", ")
        allowed = asked.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "content-type", "x-api-key"} <= set(allowed)
        answer = await client.post(
            "/v1/search/images",
            json={"text": "a dog"},
            headers={
                "origin": FRIEND,
                "sec-fetch-site": "cross-site",
                "authorization": f"Bearer {keys['read']}",
            },
        )
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == FRIEND
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert set(exposed) == {"retry-after", "x-request-id"}
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers


async def test_an_allowed_page_reads_errors_too(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    async with door(keys_file=keys_file, cors_origins=(FRIEND,)) as client:
        for method, path, status in (
            ("GET", "/v1/index", 401),
            ("GET", "/v1/nothing", 404),
            ("PUT", "/v1/index", 405),
        ):
            answer = await client.request(method, path, headers={"origin": FRIEND})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == FRIEND


async def test_an_allowed_page_reads_an_unforeseen_failure(door: Any, workers: Any) -> None:
    workers.failure = RuntimeError("secret internals")
    async with door(cors_origins=(FRIEND,)) as client:
        answer = await client.post(
            "/v1/search/images", json={"text": "a dog"}, headers={"origin": FRIEND}
        )
    assert answer.status_code == 500
    assert answer.headers["access-control-allow-origin"] == FRIEND


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://friend.example", "https://friend.example:444", "null"],
)
@pytest.mark.parametrize(("origins", "refusal"), [((), 405), ((FRIEND,), 400)])
async def test_other_pages_read_nothing(
    door: Any, origins: tuple[str, ...], refusal: int, origin: str
) -> None:
    async with door(cors_origins=origins) as client:
        asked = await client.options("/v1/search/images", headers={"origin": origin} | PREFLIGHT)
        assert asked.status_code == refusal
        read = await client.get("/v1/index", headers={"origin": origin})
        for answer in (asked, read):
            assert "access-control-allow-origin" not in answer.headers
            assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("wanted", [{}, {"access-control-request-method": "PUT"}])
async def test_options_that_asks_for_no_allowed_method_is_refused(
    door: Any, wanted: dict[str, str]
) -> None:
    async with door(cors_origins=(FRIEND,)) as client:
        answer = await client.options("/v1/search/images", headers={"origin": FRIEND} | wanted)
    assert answer.status_code == (400 if wanted else 405)


async def test_caches_are_told_that_answers_differ_by_origin(door: Any) -> None:
    async with door(cors_origins=(FRIEND,)) as client:
        for headers in ({"origin": FRIEND}, {"origin": "https://evil.example"}, {}):
            answer = await client.get("/healthz", headers=headers)
            assert "Origin" in answer.headers["vary"].split(", ")
