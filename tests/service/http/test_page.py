"""The page at /, its files, and the description at /docs."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.resources import files

import httpx
import pytest

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

PAGE = files("aladin_service").joinpath("page")
SCRIPTS = {
    file.name: file.read_text(encoding="utf-8")
    for file in PAGE.iterdir()
    if file.name.endswith(".js")
}


async def test_everything_the_pages_ask_for_is_there(service: Service) -> None:
    async with service() as client:
        for path in ("/", "/docs"):
            page = await client.get(path)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            own = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
            assert own
            for url in own:
                assert (await client.get(f"/{url}")).status_code == 200


async def test_every_file_is_served(service: Service) -> None:
    async with service() as client:
        for name in sorted({file.name for file in PAGE.iterdir() if file.is_file()}):
            if not name.endswith(".html"):  # those have addresses of their own
                assert (await client.get(f"/page/{name}")).status_code == 200, name


def test_scripts_import_what_is_there_and_offered() -> None:
    assert SCRIPTS
    for name, text in SCRIPTS.items():
        for imported, path in re.findall(r'import (?:\{([^}]+)\} from )?"\./([^"]+)"', text):
            assert path in SCRIPTS, f"{name}: {path}"
            for word in filter(None, (word.strip() for word in imported.split(","))):
                offer = rf"^export (?:async )?(?:function\*?|class|const) {word}\b"
                assert re.search(offer, SCRIPTS[path], re.MULTILINE), f"{name}: {word} of {path}"


@pytest.mark.parametrize(("page", "script"), [("index.html", "page.js"), ("docs.html", "docs.js")])
def test_a_page_names_beforehand_what_its_script_will_ask_for(page: str, script: str) -> None:
    asked: set[str] = set()
    found = {script}
    while found - asked:
        name = min(found - asked)
        asked.add(name)
        found |= set(re.findall(r'"\./([^"]+\.js)"', SCRIPTS[name]))
    text = PAGE.joinpath(page).read_text(encoding="utf-8")
    named = re.findall(r'<link rel="modulepreload" href="page/([^"]+)">', text)
    assert sorted(named) == sorted(asked - {script})


async def test_the_page_weighs_little(service: Service) -> None:
    async with service() as client:
        page = await client.get("/")
        own = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
        sizes = [len((await client.get(f"/{url}")).content) for url in own]
    assert len(page.content) + sum(sizes) < 220_000


async def test_the_page_learns_the_limits_that_are_set(service: Service) -> None:
    async with service(max_image_bytes=1000, max_text_chars=20, max_photo_size_px=64) as client:
        answer = await client.get("/page/limits.json")
    assert answer.json() == {
        "max_image_bytes": 1000,
        "max_text_chars": 20,
        "max_photo_size_px": 64,
    }


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("page.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_is_what_it_says_and_asked_for_anew(
    service: Service, name: str, media_type: str
) -> None:
    async with service() as client:
        answer = await client.get(f"/page/{name}")
    assert answer.content == PAGE.joinpath(name).read_bytes()
    assert answer.headers["content-type"] == media_type
    assert answer.headers["cache-control"] == "no-cache"


async def test_a_file_is_compressed_for_those_who_can_read_it(service: Service) -> None:
    whole = PAGE.joinpath("page.js").read_bytes()
    async with service() as client:
        plain = await client.get("/page/page.js", headers={"Accept-Encoding": "identity"})
        zipped = await client.get("/page/page.js", headers={"Accept-Encoding": "br, gzip"})
    assert plain.content == zipped.content == whole
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(whole)
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) < len(whole) / 2
    for answer in (plain, zipped):  # a cache must not give the one for the other
        assert "Accept-Encoding" in answer.headers["vary"]


@pytest.mark.parametrize("path", ["/", "/docs", "/page/page.js"])
async def test_what_a_browser_has_already_is_not_sent_again(service: Service, path: str) -> None:
    async with service() as client:
        tag = (await client.get(path)).headers["etag"]
        again = await client.get(path, headers={"If-None-Match": tag})
        other = await client.get(path, headers={"If-None-Match": 'W/"of an older version"'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    assert again.headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in again.headers["content-security-policy"]
    assert (other.status_code, other.headers["etag"]) == (200, tag)


@pytest.mark.parametrize(
    "name", ["index.html", "none.js", "..%2Fsettings.py", "%2Fetc%2Fpasswd", "../settings.py", ""]
)
async def test_no_other_file_is(service: Service, name: str) -> None:
    async with service() as client:
        assert (await client.get(f"/page/{name}")).status_code in (404, 422)


def test_nothing_in_the_pages_needs_more_than_their_policy_allows() -> None:
    for name in ("index.html", "docs.html"):
        text = PAGE.joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    for text in SCRIPTS.values():
        # What comes from the index is text, never markup or code.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


def test_nothing_comes_from_elsewhere() -> None:
    for name in ("index.html", "docs.html"):
        text = PAGE.joinpath(name).read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link)[^>]*//[^>]*>", text) == []
        for address in re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', text):
            assert address.startswith("page/")


def test_every_control_has_a_name() -> None:
    text = PAGE.joinpath("index.html").read_text(encoding="utf-8")
    labelled = re.findall(r'<label for="([^"]+)"', text)
    for tag in re.findall(r"<input[^>]*>", text):
        named = re.search(r'id="([^"]+)"', tag)
        assert (
            "aria-label=" in tag
            or 'type="radio"' in tag  # inside its label
            or (named and named[1] in labelled)
        ), tag
