"""docs/openapi.json is the document that the service answers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx
import pytest

from tests.service.http.openapi_file import COMMAND, FILE, openapi_text

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def test_the_file_is_up_to_date() -> None:
    written, now = FILE.read_text(encoding="utf-8"), openapi_text()
    changes = list(difflib.unified_diff(written.splitlines(), now.splitlines(), n=1, lineterm=""))
    if changes:
        shown = "\n".join(changes[2:60])
        pytest.fail(
            f"the API description has changed in {len(changes)} lines; if that is intended, write "
            f"docs/openapi.json by `{COMMAND}`, and check that old clients still work:\n{shown}",
            pytrace=False,
        )


@pytest.mark.anyio
async def test_the_file_is_what_a_service_answers(service: Service) -> None:
    async with service() as client:
        assert (await client.get("/openapi.json")).json() == json.loads(FILE.read_text("utf-8"))
