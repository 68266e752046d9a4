"""What docs/cluster shows is run here: the scripts by a shell, their commands by ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.format.layout import generation_folder
from tests.service.commands.conftest import aladin

CLUSTER = Path(__file__).parents[2] / "docs" / "cluster"
SLURM_BUILD, SLURM_MERGE = CLUSTER / "slurm-array.sh", CLUSTER / "slurm-merge.sh"
PARTS = 2


@pytest.fixture
def said_to_aladin(tmp_path: Path) -> Any:
    """Returns a function that runs a shell's words and returns what `aladin` was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in = folder / "aladin"
    stand_in.write_text(
        f"#!{sys.executable} -I\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    )
    stand_in.chmod(0o755)

    def run(command: list[str], **variables: object) -> list[str]:
        done = subprocess.run(
            command,
            env={"PATH": f"{folder}:{os.environ['PATH']}"}
            | {name: str(value) for name, value in variables.items()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of so many photos that they are no single batch."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(140):  # a batch has 128
        pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return folder


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, photos: Path
) -> dict[str, bytes]:
    """The files of an index of them that is built in one piece."""
    out = tmp_path_factory.mktemp("whole") / "index"
    aladin("index", "build", "--model", tiny_checkpoint, "--images", photos, "--out", out)
    return files(out)


def files(index: Path) -> dict[str, bytes]:
    folder = generation_folder(index, 1)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "manifest" not in path.name
    }


def test_the_slurm_scripts_build_the_parts_and_merge_them(
    tmp_path: Path,
    tiny_checkpoint: Path,
    photos: Path,
    whole: dict[str, bytes],
    said_to_aladin: Any,
) -> None:
    index = tmp_path / "an index"
    given = {"MODEL": tiny_checkpoint, "PHOTOS": photos, "INDEX": index}
    for task in range(1, PARTS + 1):
        words = said_to_aladin(
            ["bash", str(SLURM_BUILD)],
            **given,
            SLURM_ARRAY_TASK_ID=task,
            SLURM_ARRAY_TASK_COUNT=PARTS,
            SLURM_CPUS_PER_TASK=1,
        )
        aladin(*words)
    aladin(*said_to_aladin(["bash", str(SLURM_MERGE)], INDEX=index, PARTS=PARTS))
    assert files(index) == whole


@pytest.mark.parametrize("script", [SLURM_BUILD, SLURM_MERGE])
def test_the_slurm_scripts_say_what_is_missing(script: Path) -> None:
    done = subprocess.run(
        ["bash", str(script)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert re.search("MODEL: the checkpoint|INDEX: the folder", done.stderr)
