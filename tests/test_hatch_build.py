"""The build hook, with the compiler that this machine has."""

import ctypes
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

hatch_build = pytest.importorskip("hatch_build", reason="hatchling is not installed")

ROOT = Path(__file__).parent.parent


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the kernel's sources, below a root of its own."""
    folder = tmp_path / hatch_build.KERNEL
    folder.mkdir(parents=True)
    for path in (ROOT / hatch_build.KERNEL).glob("*.[ch]"):
        shutil.copy(path, folder)
    return folder


def hook(root: Path, warnings: list[str]) -> Any:
    app = SimpleNamespace(display_warning=warnings.append)
    return hatch_build.KernelBuildHook(str(root), {}, None, None, str(root), "wheel", app)


@pytest.mark.skipif(hatch_build.system_compiler() is None, reason="no compiler here")
def test_a_library_is_put_beside_its_sources(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the optimisation, which takes seconds.
    flags = ["-O0" if flag == "-O3" else flag for flag in hatch_build.FLAGS]
    monkeypatch.setattr(hatch_build, "FLAGS", flags)
    before = set(sources.iterdir())
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    warnings: list[str] = []
    hook(sources.parents[2], warnings).initialize("editable", data)
    (built,) = set(sources.iterdir()) - before
    assert data["artifacts"] == [f"index/aladin_index/kernel/{built.name}"]
    assert data["tag"].startswith("py3-none-")
    assert (data["pure_python"], warnings) == (False, [])
    assert ctypes.CDLL(str(built)).maxsim_interface() > 0


def test_an_installation_goes_on_without_a_compiler_that_works(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -q")
    (sources / "_maxsim.so").write_bytes(b"of an earlier version")
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    warnings: list[str] = []
    hook(sources.parents[2], warnings).initialize("standard", data)
    assert data == {"artifacts": [], "pure_python": True}
    assert len(warnings) == 1
    assert "search works, more slowly" in warnings[0]
    assert "no-such-compiler" in warnings[0]
    assert not (sources / "_maxsim.so").exists()


def test_a_compiler_is_asked_for_only_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "ccache gcc")
    assert hatch_build.system_compiler() == ["ccache", "gcc"]
    assert hook(tmp_path, []).dependencies() == []
    monkeypatch.delenv("CC")
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/clang" if name == "clang" else None)
    assert hatch_build.system_compiler() == ["clang"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert hatch_build.system_compiler() is None
    assert hook(tmp_path, []).dependencies() == ["ziglang>=0.13"]


URL = "https://example.org/me/aladin"


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("git@example.org:me/aladin.git", URL),
        ("ssh://git@example.org:2222/me/aladin.git", URL),
        ("https://me:secret@example.org/me/aladin.git", URL),
        ("https://example.org/me/aladin", URL),
        ("/srv/git/aladin.git", None),
        ("../aladin", None),
    ],
)
def test_a_remote_has_a_web_address(remote: str, expected: str | None) -> None:
    assert hatch_build.web_address(remote) == expected


def test_links_of_the_readme_become_absolute() -> None:
    text = (
        "![page](docs/a.webp) [Data](docs/DATA.md#csv) [below](#start) [site](https://example.com)"
    )
    assert hatch_build.with_absolute_links(text, URL, "v1.2") == (
        f"![page]({URL}/raw/v1.2/docs/a.webp) [Data]({URL}/blob/v1.2/docs/DATA.md#csv) "
        f"[below]({URL}#start) [site](https://example.com)"
    )
    bare = hatch_build.with_absolute_links(text, None, "v1.2")
    assert "docs/" not in bare
    assert bare == " Data below [site](https://example.com)"


def test_the_page_of_the_package_installs_it_by_its_name() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = hatch_build.with_package_name(readme, "aladin-search")
    assert "~/aladin/bin/pip install aladin-search\n~/aladin/bin/aladin photos ~/Pictures\n" in page
    assert "\npip install 'aladin-search[train]' --extra-index-url" in page
    assert "install ." not in page and "install '." not in page
    assert hatch_build.with_package_name("pip install ./x", "y") == "pip install ./x"


def test_a_package_names_the_addresses_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text("[Data](docs/DATA.md)", encoding="utf-8")
    update = hatch_build.ReadmeHook(str(tmp_path), {}).update
    monkeypatch.setenv("PROJECT_URL", f"{URL}/")
    metadata = {"name": "aladin-search", "version": "1.2"}
    update(metadata)
    assert metadata["readme"] == {
        "content-type": "text/markdown",
        "text": f"[Data]({URL}/blob/v1.2/docs/DATA.md)",
    }
    assert metadata["urls"]["Source"] == URL
    # An unpacked sdist keeps the address that it was built with.
    monkeypatch.delenv("PROJECT_URL")
    (tmp_path / "PKG-INFO").write_text(f"Name: x\nProject-URL: Source, {URL}\n", encoding="utf-8")
    assert hatch_build.repository_url(tmp_path) == URL
    (tmp_path / "PKG-INFO").write_text("Name: x\n", encoding="utf-8")
    metadata = {"name": "aladin-search", "version": "1.2"}
    update(metadata)
    assert (metadata["readme"]["text"], metadata["urls"]) == ("Data", {})
