import os
import subprocess
import sys
from pathlib import Path

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.settings import BuildSettings

SCRIPT = "tests.index.building.killed_builds"


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_killed_build_resumes_to_the_same_files(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for item in images[:10]:
        os.link(item.path, photos / item.path.name)
    (photos / "05.png").unlink()
    (photos / "05.png").write_bytes(b"broken")
    done = subprocess.run(
        [sys.executable, "-m", SCRIPT, str(tiny_checkpoint), str(photos), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert len(names) == 13
    # Of this process: other hashes of strings, and other shards, change nothing.
    build_index(
        tiny_checkpoint,
        tmp_path / "unbroken",
        (
            ImageItem(
                id=path.stem,
                path=path,
                uri=path.name,
                metadata={"name": path.stem, "a": 1, "b": [2]},
            )
            for path in sorted(photos.iterdir())
        ),
        (TextItem(id=f"t{number}", text="two dogs run " * (number + 1)) for number in range(5)),
        BuildSettings(shards=2, batch_size=2, token_dtype="4bit"),
    )
    expected = content(tmp_path / "unbroken")
    assert "generations/000001/images/ann.faiss" in expected
    assert "generations/000001/images/centroids.npy" in expected
    for name in names:
        found = content(tmp_path / name)
        assert found.keys() == expected.keys(), name
        different = [file for file in expected if found[file] != expected[file]]
        assert different == [], name
