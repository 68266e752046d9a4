"""Addresses of items: every door writes the same, proxies pass it, and the route reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

import aladin_service
from aladin_service.client import items
from aladin_service.client.items import item_path
from aladin_service.http.routes import pictures

PAGE = Path(aladin_service.__file__).parent / "page"

# Ids of photos in folders, as `aladin photos` and builds of folders give them.
OF_FOLDERS = ("holiday/1.jpg", "a/b c/ü?.jpg", "2024/#1/50%.jpg", "a/b%2Fc.jpg", "...", "a/.b/c..")
# An empty part, "." or ".." of a path would be resolved on the way.
OF_NO_FOLDER = ("/data/1.jpg", "a//b", "../street", "a/../../b", "./a", "a/", "/", "//", "a/.")
OTHERS = ("a+b&c=d;e", "C:\\photos\\1.jpg", "!*'()~-_.", "$&", "%ff", "😀/é")
ODD = (*OF_FOLDERS, *OF_NO_FOLDER, *OTHERS)

parts = st.sampled_from(["", ".", "..", "a", "%2F", "?", "#", "é", " ", "\\"]) | st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), max_size=4
)
ids = (
    st.lists(parts, min_size=1, max_size=5)
    .map("/".join)
    .filter(lambda each: each not in ("", ".", ".."))
)


def received(address: str) -> str:
    """Return the id that the route of photos takes from an address, as a client sends it."""
    sent = httpx.URL(f"http://localhost/{address}").raw_path.decode()
    scope = {"type": "http", "method": "GET", "path": unquote(sent)}
    (route,) = (each for each in pictures.router.routes if each.matches(scope)[0] is Match.FULL)
    return route.matches(scope)[1]["path_params"]["item_id"]


@given(ids)
def test_all_calls_write_an_id_in_the_same_way_and_the_route_reads_it(drawn: str) -> None:
    for item_id in (drawn, *ODD):
        written = item_path(item_id)
        assert items.photo(item_id, 64).path == f"v1/images/{written}"
        assert items.item("texts", item_id).path == f"v1/items/texts/{written}"
        assert items.delete("images", item_id).path == f"v1/items/images/{written}"
        assert received(f"v1/images/{written}") == item_id
        assert not {"", ".", ".."} & set(written.split("/"))  # which would be resolved on the way
    for item_id in OF_FOLDERS:  # a slash is not escaped: proxies refuse such paths
        assert item_path(item_id).count("/") == item_id.count("/")
        assert "%2F" not in item_path(item_id)


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script by node")
def test_the_page_writes_the_addresses_of_the_client(tmp_path: Path) -> None:
    for name in ("formats.js", "elements.js"):
        shutil.copy(PAGE / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    script = (
        'import { itemPath } from "./formats.js";'
        "console.log(JSON.stringify(JSON.parse(process.argv[2]).map(itemPath)))"
    )
    (tmp_path / "run.js").write_text(script)
    command = ["node", str(tmp_path / "run.js"), json.dumps(ODD)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [item_path(each) for each in ODD]
    for file in PAGE.glob("*.js"):
        if file.name != "formats.js":
            assert "encodeURIComponent" not in file.read_text("utf-8"), file.name


@pytest.mark.anyio
async def test_photos_of_folders_are_served_without_escaped_slashes(
    client: httpx.AsyncClient, image_ids: list[str]
) -> None:
    for item_id in set(image_ids) - {"../street"}:
        for path in (items.photo(item_id, 32).path, items.item("images", item_id).path):
            assert "%2f" not in path.replace("%252F", "").lower()
            assert (await client.get(f"/{path}")).status_code == 200, path
