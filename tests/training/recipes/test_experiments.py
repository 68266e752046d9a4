"""Every command of PAPERS.md's table of experiments, run word for word on tiny networks and data.

The commands go through the command line as they are printed. What is small is what they read: the
recipes get tiny encoders, the drawn scenes and an epoch a stage, files of many variants are cut to
one line of each kind, and grids to two values.
"""

from __future__ import annotations

import functools
import importlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_training.comparison import report
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.config.toml_files import variants_of
from aladin_training.stages.run import run_recipe
from tests.training.recipes.experiments import ROOT, Experiment, experiments, recipes_in

# One line of each kind: a loss, a scenario, a start or a source that no other recipe has. Of other
# files the first and the last variant are run. Two lines need files that another command makes;
# tests of their own run both commands: `mined-file` of aoq-attention and `vsepp` of dbl-anchors.
KINDS = {
    "aladin": ["t-ft", "d"],
    "aladin-vinvl": ["d", "t-ft"],
    "aladin-warm-up": ["without"],
    "aoq": ["online-quin", "without-offline-adap", "own-start"],
    "aoq-attention": ["eq-5"],
    "dbl-2": ["oas-dr", "oas-rkd", "oss-dml", "mss-dino-star"],
    "dbl-3": ["cmpm", "mss-am"],
    "dbl-4": ["rm-am-soft"],
    "dbl-anchors": ["half"],
    "dbl-branches": ["3-dml"],
    "goal": ["con-con", "con-lin-ms"],
    "goal-vsepp": ["cir-sig-ms"],
    "imc": ["cos", "none"],
    "primary": ["mh", "oas-am", "d"],
}
# What makes other programs of the table tiny.
SMALL = {
    "benchmarks.joint_transformer": ["--quick"],
    "benchmarks.training.embedding_map": ["--photos", "8"],
    "benchmarks.training.goal_weights": ["--steps", "6"],
}
RUN = [each for each in experiments() if each.command is not None]


@functools.cache
def chosen_variants(path: Path, baseline: str | None) -> tuple[str, ...]:
    """Return the variants of a file that are run: those above, and the comparison's baseline."""
    variants = variants_of(path)
    kinds = KINDS.get(path.stem, [*variants[:1], *variants[-1:]])
    assert not variants or set(kinds) <= set(variants), path
    return tuple(
        each
        for each in variants
        if each in kinds or load_recipe(path, [f"variant={each}"]).name == baseline
    )


@pytest.fixture
def small(
    tiny: Callable[..., Recipe], shared: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Experiment], None]:
    """Return a function that makes the commands of this test read tiny recipes."""

    def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
        return tiny(path, *overrides)

    def prepare(experiment: Experiment) -> None:
        assert experiment.command is not None
        words = shlex.split(experiment.command)
        baseline = words[words.index("--baseline") + 1] if "--baseline" in words else None
        monkeypatch.chdir(ROOT)
        for module in ("comparison.plan", "comparison.grid", "config.recipe"):
            monkeypatch.setattr(f"aladin_training.{module}.load_recipe", load)
        monkeypatch.setattr(
            "aladin_training.comparison.plan.variants_of",
            lambda path: chosen_variants(ROOT / path, baseline),
        )
        # Equal stages are trained once for all lines of the table.
        monkeypatch.setattr(ComparisonPlan, "shared_stages", shared / "stages")
        monkeypatch.setattr(report, "_PICTURES", [])  # which take most of the time

    return prepare


@pytest.fixture(scope="session")
def trained(
    tiny: Callable[..., Recipe], shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint of the baseline."""
    run = tmp_path_factory.mktemp("mh") / "run"
    recipe = tiny(recipes_folder() / "compare" / "mh.toml")
    return run_recipe(recipe, run, shared=shared / "stages").checkpoint


@pytest.fixture(scope="session")
def index(trained: Path, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the scenes, made by the baseline."""
    out = tmp_path_factory.mktemp("index") / "index"
    words = ["--model", trained, "--images", scenes, "--texts", scenes, "--out", out]
    result = CliRunner().invoke(app, ["index", "build", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return out


@pytest.mark.parametrize("experiment", RUN, ids=lambda each: f"{each.paper}: {each.name}")
def test_the_command_runs(
    experiment: Experiment,
    small: Callable[[Experiment], None],
    scenes: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small(experiment)
    assert experiment.command is not None
    program, *words = shlex.split(experiment.command)
    words = [placed(word, scenes, tmp_path, request) for word in words]
    if program == "python":
        flag, module, *options = words
        assert flag == "-m"
        monkeypatch.setattr(sys, "argv", [module, *options, *SMALL[module]])
        benchmark = importlib.import_module(module)
        if hasattr(benchmark, "in_fresh_process"):  # which only figures that are kept need
            monkeypatch.setattr(benchmark, "in_fresh_process", lambda work, *args: work(*args))
        benchmark.main()
        assert capsys.readouterr().out
    else:
        assert program == "aladin"
        command, *options = words
        if command == "compare":
            options += ["--seeds", "1", "--no-step-times"]
        result = CliRunner().invoke(app, [command, *options])
        assert result.exit_code == 0, f"{result.stderr}\n{result.exception!r}"
        assert result.stdout
    for option in ("--out", "--curve"):
        if option in words:
            assert Path(words[words.index(option) + 1]).exists()
    check_runs(tmp_path / "out", experiment.command)


def placed(word: str, scenes: Path, out: Path, request: pytest.FixtureRequest) -> str:
    """Replace what a word of a command stands for, and shorten the values of a grid."""
    names = {"CHECKPOINT": "trained", "INDEX": "index"}
    if word.startswith("runs/"):
        return str(request.getfixturevalue("trained") if "checkpoint" in word else out / "out")
    if word in names:
        return str(request.getfixturevalue(names[word]))
    if word in ("DATA", "data/flickr8k/captions.jsonl"):
        return str(scenes)
    if word == "QUERY":
        return "a red circle"
    if word.endswith(".png"):
        return str(out / word)
    if word.startswith("data.selection="):  # of 16 photos
        return "data.selection=0.5"
    key, equals, values = word.partition("=")
    return f"{key}={','.join(values.split(',')[:2])}" if equals else word


def check_runs(out: Path, command: str) -> None:
    """Check that every recipe of a command has trained the network that it starts from."""
    recipes = recipes_in(command)
    finals = sorted(out.glob("runs/*/seed-0/checkpoint")) or sorted(out.glob("checkpoint"))
    assert len(finals) >= len(recipes)
    for final in finals:
        ends = load_file(final / "model.safetensors")
        starts = [
            load_file(stage)
            for stage in sorted(final.parent.glob("stages/*/checkpoint/model.safetensors"))
        ]
        # The last stage's own checkpoint is the run's; all others differ from it.
        same = [all(torch.equal(ends[name], start[name]) for name in ends) for start in starts]
        assert sum(same) == 1, final
