"""From a wheel to a search in the page: installed anew, ``aladin photos`` over a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, expect

from aladin_training.demo.scenes import draw_data_set
from benchmarks.service.search_page import SearchPage

ROOT = Path(__file__).parents[2]
_PHOTOS = 200
_PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``aladin`` in a new environment: the wheel's own, and the packages of this one."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    subprocess.run(build, check=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    target = ["install", "--no-deps", "--no-compile", "--target", packages, wheel]
    subprocess.run([*pip, *target], check=True)
    others = [path for path in sys.path if path.endswith("site-packages")]
    # Behind the wheel's: an editable installation of this tree is not found in it.
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    script = folder / "aladin"
    python = folder / "venv" / "bin" / "python"
    script.write_text(
        f"#!{python}\nimport sys\nfrom aladin_service.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    script.chmod(0o755)
    return script


@contextmanager
def started(
    command: Path, photos: Path, model: Path, home: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command as a user with an empty home, and yield it with its address."""
    own = ("ALADIN_", "XDG_", "PYTHON")
    environment = {name: each for name, each in os.environ.items() if not name.startswith(own)}
    environment |= {"HOME": str(home), "OMP_NUM_THREADS": "1"}
    words = [command, "photos", photos, "--model", model, "--no-browser"]
    with (
        (home / "messages.txt").open("w") as messages,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=messages, text=True, cwd=home, env=environment
        ) as running,
    ):
        try:
            assert running.stdout is not None
            address = running.stdout.readline().strip()
            assert address, (home / "messages.txt").read_text()
            yield running, address
        finally:
            running.kill()


def count(address: str) -> int:
    """Return the number of photos that a search may return."""
    page, _, token = address.partition("/?token=")
    request = Request(f"{page}/v1/index", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)["images"]["count"]


@pytest.mark.browser
def test_from_the_wheel_to_a_search_in_the_page(
    command: Path, clip_folder: Path, browser: Browser, tmp_path: Path
) -> None:
    draw_data_set(tmp_path / "drawn", scenes=_PHOTOS, val_scenes=1, test_scenes=1, size_px=160)
    photos = tmp_path / "drawn" / "images"
    total = len(list(photos.iterdir()))
    with started(command, photos, clip_folder, tmp_path) as (running, address):
        context = browser.new_context()
        page = SearchPage(context, address.partition("/?")[0])
        page.page.goto(address)
        expect(page.listed.first).to_be_visible()  # while the others are added
        assert page.page.url == f"{page.url}/"  # the key is in no history and in no link
        tab = context.new_page()  # of the same browser: the key need not be given again
        tab.goto(f"{page.url}/")
        expect(tab.locator("#library li.hit img").first).to_be_visible()
        tab.close()
        until = time.monotonic() + _PATIENCE_S
        while count(address) < total and time.monotonic() < until:
            time.sleep(0.2)
        page.page.reload()
        expect(page.page.locator("#index-info")).to_have_text(f"{total} photos")
        page.ask("a red circle")
        expect(page.hits.first).to_be_visible()
        page.show_details()
        page.page.locator("#options-toggle[aria-expanded=false]").click()
        expect(page.page.locator("#option-unaligned")).to_be_visible()
        expect(page.page.locator("#option-rerank")).to_be_hidden()
        assert page.complaints.made == []
        context.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    assert (tmp_path / ".local/share/aladin-search/libraries").is_dir()
    with started(command, photos, clip_folder, tmp_path) as (_, address):
        assert count(address) == total  # nothing was lost, and it is served at once
