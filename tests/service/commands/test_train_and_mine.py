"""``aladin train``, ``mine`` and ``compare``: recipes and data in, files out, and going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from typer.testing import Result

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.model import AladinModel
from aladin_training.config.shipped import recipes_folder
from aladin_training.demo.scenes import draw_data_set
from tests.service.commands.conftest import aladin, write_lines

DEMO = recipes_folder() / "demo.toml"


@pytest.fixture(scope="module")
def source(data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos of `data_file`, four to train on and two to validate with."""
    folder = shutil.copytree(data_file.parent, tmp_path_factory.mktemp("trained") / "data")
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["split"] = "train" if number < 4 else "val"
    return write_lines(folder / "data.jsonl", *lines)


def test_a_run_prints_its_checkpoint_and_is_resumed_only_if_asked(
    source: Path, tmp_path: Path, exports: list[Path]
) -> None:
    changes = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]
    words = ["train", DEMO, "--out", tmp_path / "run", f"--set=data.source={source}"]
    words += [f"--set={change}" for change in changes]
    first = aladin(*words)
    checkpoint = Path(first.stdout.strip())
    assert checkpoint.parent == tmp_path / "run"
    assert exports == [checkpoint]
    loaded = load_checkpoint(checkpoint)
    assert loaded.provenance.stage == "student"
    assert "steps" in first.stderr
    assert "--resume" in aladin(*words, code=2).stderr
    assert aladin(*words, "--resume").stdout == first.stdout
    assert load_checkpoint(checkpoint).model_id == loaded.model_id


def test_negatives_are_mined_once_and_a_stale_file_is_kept(
    tiny_checkpoint: Path,
    build_tiny: Callable[..., AladinModel],
    data_file: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "mined" / "negatives.safetensors"

    def mine(model: Path, data: Path, *words: object, code: int = 0) -> Result:
        given = ["--out", out, "--cache", tmp_path / "cache", "--texts", 4, "--images", 2]
        return aladin("mine", model, data, *given, "--memory-mb", 1, *words, code=code)

    first = mine(tiny_checkpoint, data_file, "--split", "test")
    assert first.stdout == f"{out}\n"
    assert "photos compared" in first.stderr
    with safe_open(out, "np") as mined:
        shapes = [mined.get_slice(name).get_shape() for name in ("texts", "images")]
    assert shapes == [[5, 4], [10, 2]]
    before, written = out.read_bytes(), out.stat().st_mtime_ns
    again = mine(tiny_checkpoint, data_file, "--split", "test")
    assert (again.stdout, out.stat().st_mtime_ns) == (first.stdout, written)
    assert "nothing to do" in again.stderr
    model = build_tiny()
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    save_checkpoint(tmp_path / "other", model)
    lines = data_file.read_text(encoding="utf-8").splitlines()
    turned = shutil.copytree(data_file.parent, tmp_path / "turned") / data_file.name
    turned.write_text("\n".join(reversed(lines)), encoding="utf-8")
    stale: list[tuple[Path, Path, list[object], str]] = [
        (tmp_path / "other", data_file, ["--split", "test"], "the model: expected"),
        (tiny_checkpoint, turned, ["--split", "test"], "the data or its order: expected"),
        (tiny_checkpoint, data_file, ["--split", "all"], "the data or its order: expected"),
        (tiny_checkpoint, data_file, ["--split", "test", "--texts", 5], "expected 5, found 4"),
    ]
    for model_folder, data, words, says in stale:
        refused = mine(model_folder, data, *words, code=2)
        assert refused.stdout == "" and says in refused.stderr.splitlines()[-1]
        assert out.read_bytes() == before


@pytest.fixture
def compare(source: Path, tmp_path: Path) -> Callable[..., Result]:
    """Compares the recipes plain and quick and their base: one seed, an epoch of the teacher."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    base = DEMO.read_text(encoding="utf-8").replace("aladin-demo/data/captions.jsonl", str(source))
    (folder / "_base.toml").write_text(base, encoding="utf-8")
    for name in ("plain", "quick"):
        text = f'extends = "_base.toml"\nname = "{name}"\nfinal = "teacher"\n'
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")

    def run(*words: object, code: int = 0) -> Result:
        given = ["--seeds", 1, "--set", "stage.teacher.epochs=1", "--no-step-times"]
        return aladin("compare", folder, "--out", tmp_path / "out", *given, *words, code=code)

    return run


def test_recipes_of_a_folder_are_compared_and_a_failed_one_is_named(
    compare: Callable[..., Result], tmp_path: Path
) -> None:
    recipes, report = tmp_path / "recipes", tmp_path / "out" / "report.md"
    foretold = compare("--pilot", 1).stdout
    assert "2 runs, 1 different stages" in foretold  # both recipes are the same but for their names
    assert "h of one process, by 1 runs" in foretold
    assert not report.exists()
    shutil.rmtree(tmp_path / "out")
    compare("--report-only", "--first-seed", 7)
    assert not (tmp_path / "out" / "runs").exists()
    assert "plain seed 7: not trained and evaluated yet" in report.read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "out")
    broken = 'extends = "plain.toml"\nname = "quick"\n[data]\nsource = "gone.jsonl"\n'
    (recipes / "quick.toml").write_text(broken, encoding="utf-8")
    result = compare("--baseline", "plain", code=1)
    assert result.stdout.strip() == str(report)
    assert "error: quick seed 0: " in result.stderr
    assert "gone.jsonl" in result.stderr.splitlines()[-1]
    assert "run 1 of 2, plain seed 0: alignment rsum" in result.stderr
    said = report.read_text(encoding="utf-8")
    assert "difference to plain" in said and "| plain |" in said.replace("**", "")


def as_karpathy(source: Path, folder: Path) -> Path:
    """Write the same photos as COCO's Karpathy split: two folders, restval, numbers."""
    images: list[dict[str, Any]] = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines()):
        record, subfolder = json.loads(line), "train2014" if number < 3 else "val2014"
        name = f"COCO_{subfolder}_{number:012d}{Path(record['image']).suffix}"
        (folder / "images" / subfolder).mkdir(parents=True, exist_ok=True)
        shutil.copy(source.parent / record["image"], folder / "images" / subfolder / name)
        sentences = [
            {
                "raw": text,
                "tokens": text.lower().split(),
                "imgid": number,
                "sentid": 10 * number + n,
            }
            for n, text in enumerate(record["captions"])
        ]
        image = {"filepath": subfolder, "filename": name, "imgid": number, "cocoid": 1000 + number}
        split = ("train", "train", "train", "restval", "val", "val")[number]
        sentids = [each["sentid"] for each in sentences]
        images.append(image | {"split": split, "sentids": sentids, "sentences": sentences})
    file = folder / "dataset_coco.json"
    file.write_text(json.dumps({"images": images, "dataset": "coco"}), encoding="utf-8")
    return file


def test_two_data_sets_are_compared_side_by_side(
    compare: Callable[..., Result], source: Path, tmp_path: Path
) -> None:
    """The drawn scenes are there already; of two photos in two blocks, each is found: 600."""
    out, karpathy = tmp_path / "out", as_karpathy(source, tmp_path / "coco")
    scenes = {"scenes": 8, "val_scenes": 2, "test_scenes": 2, "captions": 2, "size_px": 32}
    draw_data_set(out / "scenes" / "data", **scenes)
    result = compare("--data", karpathy, "--data", "scenes", "--folds", 2)
    assert result.stdout.strip() == str(out / "report.md")
    joint = (out / "report.md").read_text(encoding="utf-8")
    assert "# 2 recipes compared on 2 data sets" in joint
    same = r"+0.0 (+0.0 to +0.0)"
    assert f"| quick | {same} | {same} |" in joint
    for name in ("dataset\\_coco", "scenes"):
        report = (out / name.replace("\\", "") / "report.md").read_text(encoding="utf-8")
        assert "in 2 blocks" in report
        assert "| **plain** | **alignment** | **600.0** |" in report
        assert name in joint
