"""``aladin compare``: a folder of recipes in, a report out, and what failed said plainly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app
from aladin_training.demo.scenes import draw_data_set

DEMO = Path(__file__).parents[3] / "training" / "recipes" / "demo.toml"


@pytest.fixture
def recipes(data_file: Path, tmp_path: Path) -> Path:
    """A folder of two recipes and their base: six photos, an epoch of each stage."""
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["split"] = "train" if number < 4 else "val"
    file = data_file.with_name("compared.jsonl")
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    folder = tmp_path / "recipes"
    folder.mkdir()
    base = DEMO.read_text(encoding="utf-8").replace("aladin-demo/data/captions.jsonl", str(file))
    (folder / "_base.toml").write_text(base, encoding="utf-8")
    for name in ("plain", "quick"):
        text = f'extends = "_base.toml"\nname = "{name}"\n'
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


def run(recipes: Path, out: Path, *more: str) -> Result:
    """Run the command with one seed and one short epoch a stage."""
    changes = ["--set", "stage.teacher.epochs=1", "--set", "stage.student.epochs=1"]
    return CliRunner().invoke(
        app, ["compare", str(recipes), "--out", str(out), "--seeds", "1", *changes, *more]
    )


def test_recipes_of_a_folder_are_compared(recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(recipes, out, "--baseline", "quick", "--no-step-times")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(out / "report.md")
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "difference to quick" in report
    assert "| plain | matching |" in report
    assert "run 2 of 2, quick seed 0: matching rsum" in result.stderr


def test_nothing_is_trained_for_a_report_only(recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(recipes, out, "--report-only")
    assert result.exit_code == 0
    assert not (out / "runs").exists()
    assert "plain seed 0: not trained and evaluated yet" in (out / "report.md").read_text()


def test_a_failed_run_is_named_and_fails_the_command(recipes: Path, tmp_path: Path) -> None:
    broken = 'extends = "_base.toml"\nname = "broken"\n[data]\nsource = "gone.jsonl"\n'
    (recipes / "broken.toml").write_text(broken, encoding="utf-8")
    (recipes / "quick.toml").unlink()
    out = tmp_path / "out"
    result = run(recipes, out, "--no-step-times")
    assert result.exit_code == 1
    assert result.stdout.strip() == str(out / "report.md")
    assert "error: broken seed 0: " in result.stderr
    assert "gone.jsonl" in result.stderr.splitlines()[-1]
    assert "| plain | matching |" in (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--baseline", "nobody"], "nobody"), (["--set", "seeds=2"], "seeds")],
)
def test_impossible_comparisons_are_the_users_mistake(
    words: list[str], says: str, recipes: Path, tmp_path: Path
) -> None:
    result = run(recipes, tmp_path / "out", *words)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.fixture
def karpathy(data_file: Path) -> Path:
    """The same photos in the layout of COCO's Karpathy split: two folders, restval, numbers."""
    root = data_file.parent / "coco"
    images: list[dict[str, object]] = []
    for number, line in enumerate(data_file.read_text(encoding="utf-8").splitlines()):
        record = json.loads(line)
        subfolder = "train2014" if number < 3 else "val2014"
        name = f"COCO_{subfolder}_{number:012d}{Path(record['image']).suffix}"
        (root / "images" / subfolder).mkdir(parents=True, exist_ok=True)
        shutil.copy(data_file.parent / record["image"], root / "images" / subfolder / name)
        sentences = [
            {
                "raw": text,
                "tokens": text.lower().split(),
                "imgid": number,
                "sentid": 10 * number + n,
            }
            for n, text in enumerate(record["captions"])
        ]
        images.append(
            {
                "filepath": subfolder,
                "filename": name,
                "imgid": number,
                "cocoid": 1000 + number,
                "split": ("train", "train", "train", "restval", "val", "val")[number],
                "sentids": [each["sentid"] for each in sentences],
                "sentences": sentences,
            }
        )
    file = root / "dataset_coco.json"
    file.write_text(json.dumps({"images": images, "dataset": "coco"}), encoding="utf-8")
    return file


def test_two_data_sets_are_compared_side_by_side(
    recipes: Path, karpathy: Path, tmp_path: Path
) -> None:
    """The drawn scenes are there already; of two photos in two blocks, each is found: 600."""
    out = tmp_path / "out"
    draw_data_set(
        out / "scenes" / "data", scenes=8, val_scenes=2, test_scenes=2, captions=2, size_px=32
    )
    data = ["--data", str(karpathy), "--data", "scenes"]
    result = run(recipes, out, *data, "--folds", "2", "--no-step-times")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(out / "report.md")
    joint = (out / "report.md").read_text(encoding="utf-8")
    assert "# 2 recipes compared on 2 data sets" in joint
    same = r"+0.0 (+0.0 to +0.0)"
    assert f"| quick | {same} | {same} |" in joint
    for name in ("dataset\\_coco", "scenes"):
        report = (out / name.replace("\\", "") / "report.md").read_text(encoding="utf-8")
        assert "in 2 blocks" in report
        assert "| **plain** | **matching** | **600.0** |" in report
        assert name in joint


def test_data_sets_have_names_of_their_own(recipes: Path, tmp_path: Path) -> None:
    result = run(recipes, tmp_path / "out", "--data", "a/captions.jsonl", "--data", "b/a.json")
    assert result.exit_code == 2
    assert "both named 'a'" in result.stderr.splitlines()[-1]


def test_corrected_scores_are_not_ranked_in_blocks(recipes: Path, tmp_path: Path) -> None:
    result = run(recipes, tmp_path / "out", "--correct", "--folds", "2")
    assert result.exit_code == 2
    assert "not evaluated in blocks" in result.stderr.splitlines()[-1]
