"""The page at /state and its files."""

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
HTML = PAGE.joinpath("state.html").read_text(encoding="utf-8")


async def test_the_page_and_all_that_it_names_are_served(service: Service) -> None:
    async with service() as client:
        page = await client.get("/state")
        own = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
        answers = {url: await client.get(f"/{url}") for url in own}
    assert page.text == HTML
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    policy = page.headers["content-security-policy"]
    for directive in ("default-src 'none'", "script-src 'self'", "style-src 'self'"):
        assert f"{directive};" in policy
    assert "connect-src 'self'" in policy
    assert {url: answer.status_code for url, answer in answers.items()} == dict.fromkeys(own, 200)
    assert len(page.content) + sum(len(answer.content) for answer in answers.values()) < 100_000


def test_all_scripts_are_named_beforehand() -> None:
    asked: set[str] = set()
    found = {"state.js"}
    while found - asked:
        name = min(found - asked)
        asked.add(name)
        script = PAGE.joinpath(name).read_text(encoding="utf-8")
        found |= set(re.findall(r'"\./([^"]+\.js)"', script))
    named = re.findall(r'<link rel="modulepreload" href="page/([^"]+)">', HTML)
    assert sorted(named) == sorted(asked - {"state.js"})


def test_nothing_in_it_needs_more_than_the_policy_allows() -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=)", HTML)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://", HTML)


def test_every_part_that_the_scripts_look_for_is_there() -> None:
    ids = set(re.findall(r'\sid="([^"]+)"', HTML))
    for name in ("state.js", "problems.js"):
        script = PAGE.joinpath(name).read_text(encoding="utf-8")
        assert set(re.findall(r'\bat\("([^"]+)"\)', script)) <= ids, name


async def test_a_page_without_an_index_is_served_too(service: Service, tmp_path: object) -> None:
    async with service(index=tmp_path) as client:
        assert (await client.get("/state")).status_code == 200
