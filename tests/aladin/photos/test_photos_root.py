"""The folder that photos have to lie in."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_network.photos.files import ListedPhotos, PhotosRoot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of photos with links that stay inside and links that lead out of it."""
    root = tmp_path / "photos"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "photos-private").mkdir()
    for photo in (root / "a.jpg", root / "sub" / "b.jpg", tmp_path / "photos-private" / "c.jpg"):
        photo.write_bytes(b"x")
    (root / "inside.jpg").symlink_to("sub/b.jpg")
    (root / "outside.jpg").symlink_to("../photos-private/c.jpg")
    (root / "nowhere.jpg").symlink_to("../gone/c.jpg")
    (root / "folder").symlink_to("../photos-private")
    return root


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("a.jpg", True),
        ("sub/b.jpg", True),
        ("sub/../a.jpg", True),
        ("inside.jpg", True),
        ("not there.jpg", True),
        ("outside.jpg", False),
        ("nowhere.jpg", False),
        ("folder/c.jpg", False),
        ("../photos-private/c.jpg", False),
        ("/etc/passwd", False),
        (".", False),
    ],
)
def test_links_are_resolved_before_a_photo_is_accepted(root: Path, name: str, held: bool) -> None:
    photos = PhotosRoot(root)
    assert photos.holds(root / name) is held
    if name != ".":
        assert ListedPhotos(photos).holds(root / name) is held


def test_a_name_with_a_zero_byte_is_nowhere(root: Path) -> None:
    assert not PhotosRoot(root).holds(root / "a\0.jpg")


def test_a_root_may_be_a_link_or_everything(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert PhotosRoot(tmp_path / "link").holds(root / "a.jpg")
    assert PhotosRoot(Path("/")).holds(root / "a.jpg")
