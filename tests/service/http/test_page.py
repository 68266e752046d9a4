"""The page at /, its files, and the description at /docs."""

from __future__ import annotations

import re
from importlib.resources import files

import httpx
import pytest

from tests.service.http.conftest import Service

PAGE = files("aladin_service").joinpath("page")
FILES = {file.name: file.read_bytes() for file in PAGE.iterdir() if file.is_file()}
SCRIPTS = {name: text.decode() for name, text in FILES.items() if name.endswith(".js")}
PAGES = {name: text.decode() for name, text in FILES.items() if name.endswith(".html")}


@pytest.mark.anyio
async def test_the_pages_and_everything_they_ask_for_are_there(client: httpx.AsyncClient) -> None:
    sizes: dict[str, int] = {}
    for path in ("/", "/docs"):
        page = await client.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        own = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
        contents = [(await client.get(f"/{url}")).raise_for_status().content for url in own]
        sizes[path] = len(page.content) + sum(map(len, contents))
    assert sizes["/"] < 250_000


@pytest.mark.anyio
async def test_every_file_is_served_as_what_it_is_and_asked_for_anew(
    client: httpx.AsyncClient,
) -> None:
    types = {
        "page.js": "text/javascript; charset=utf-8",
        "page.css": "text/css; charset=utf-8",
        "icon.svg": "image/svg+xml",
    }
    for name, content in FILES.items():
        answer = await client.get(f"/page/{name}")
        if name in PAGES:  # those have addresses of their own
            assert answer.status_code == 404
            continue
        assert (answer.status_code, answer.content) == (200, content), name
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"] == types.get(name, answer.headers["content-type"])
    for name in ("none.js", "..%2Fsettings.py", "%2Fetc%2Fpasswd", "../settings.py", ""):
        assert (await client.get(f"/page/{name}")).status_code in (404, 422), name


def test_scripts_import_what_is_there_and_offered() -> None:
    assert SCRIPTS
    for name, text in SCRIPTS.items():
        for imported, path in re.findall(r'import (?:\{([^}]+)\} from )?"\./([^"]+)"', text):
            assert path in SCRIPTS, f"{name}: {path}"
            for word in filter(None, (word.strip() for word in imported.split(","))):
                offer = rf"^export (?:async )?(?:function\*?|class|const) {word}\b"
                assert re.search(offer, SCRIPTS[path], re.MULTILINE), f"{name}: {word} of {path}"


@pytest.mark.anyio
async def test_the_page_learns_the_limits_that_are_set(service: Service) -> None:
    limits = {"max_image_bytes": 1000, "max_text_chars": 20, "max_photo_size_px": 64}
    async with service(**limits) as client:
        assert (await client.get("/page/limits.json")).json() == limits


@pytest.mark.anyio
async def test_a_file_is_compressed_for_those_who_can_read_it(client: httpx.AsyncClient) -> None:
    whole = FILES["page.js"]
    plain = await client.get("/page/page.js", headers={"Accept-Encoding": "identity"})
    zipped = await client.get("/page/page.js", headers={"Accept-Encoding": "br, gzip"})
    assert plain.content == zipped.content == whole
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(whole)
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) < len(whole) / 2
    for answer in (plain, zipped):  # a cache must not give the one for the other
        assert "Accept-Encoding" in answer.headers["vary"]


def test_nothing_needs_more_than_the_policy_allows_or_comes_from_elsewhere() -> None:
    for text in PAGES.values():
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
        assert re.findall(r"<(?:script|link)[^>]*//[^>]*>", text) == []
        for address in re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', text):
            assert address.startswith("page/")
    for text in SCRIPTS.values():
        # What comes from the index is text, never markup or code.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
