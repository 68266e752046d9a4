"""The recipe `first-stage` trains the head that finds the candidates of the alignment."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.checkpoint_files import read_first_stage
from aladin_network.config import FirstStageHeadConfig
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import EncodedItems
from aladin_network.scoring.learned_stage import fit_learned_stage
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import find_recipe
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from aladin_training.tasks.joint import JointTask
from tests.conftest import CAPTIONS
from tests.tensors import encode_photos, encode_texts

PHOTOS = 72
WORDS = sorted({word for caption in CAPTIONS for word in caption.split()})
SIZES = FirstStageHeadConfig(dim=6, hidden=24, bank=8)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random pictures with three captions of random words each."""
    folder = tmp_path_factory.mktemp("pictures")
    drawn, generator = random.Random(0), np.random.default_rng(0)
    lines: list[str] = []
    for number in range(PHOTOS + 8):
        pixels = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(folder / f"{number}.png")
        captions = [" ".join(drawn.choices(WORDS, k=drawn.randint(2, 6))) for _ in range(3)]
        split = "train" if number < PHOTOS else "val"
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder / "captions.jsonl"


def recipe_of(start: Path, pictures: Path, tmp_path: Path, *more: str) -> Recipe:
    """Return the shipped recipe for a few steps on `pictures`."""
    settings = [
        f"start={start}",
        f"data.source={pictures}",
        f"data.cache={tmp_path / 'cache'}",
        "precision=float32",
        *(f"model.first_stage.{name}={value}" for name, value in vars(SIZES).items()),
        "final.batch_size=24",
        "final.captions_per_photo=3",
        "final.schedule.warmup_steps=0",
        "final.validate_every_epochs=100",
        *more,
    ]
    return load_recipe(find_recipe("first-stage"), settings)


def encoded(model: AladinModel, pictures: Path) -> tuple[EncodedBatch, EncodedBatch]:
    """Encode the training photos, and their captions."""
    lines = [json.loads(line) for line in pictures.read_text().splitlines()][:PHOTOS]
    photos = [Image.open(pictures.parent / line["image"]).convert("RGB") for line in lines]
    return encode_photos(model, photos), encode_texts(
        model, [c for e in lines for c in e["captions"]]
    )


@torch.no_grad()
def distance(model: AladinModel, images: EncodedBatch, texts: EncodedBatch) -> float:
    """Return the mean square of what the head leaves of the centred alignment."""
    own, wanted = (model.scores(name, images, texts) for name in ("first_stage", "alignment"))
    return float((own - own.mean(dim=0) - wanted + wanted.mean(dim=0)).square().mean())


def test_the_head_is_fitted_then_trained_and_nothing_else_changes(
    tiny_checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    task = {"loss": "score_regression", "options": {}}
    recipe = recipe_of(
        tiny_checkpoint,
        pictures,
        tmp_path,
        "final.epochs=30",
        "final.lr=1e-2",
        f"final.tasks.first_stage_distillation={json.dumps(task)}",
    )
    result = run_recipe(recipe, tmp_path / "run")
    before, after = load_checkpoint(tiny_checkpoint).model, load_checkpoint(result.checkpoint).model
    assert after.config.first_stage == SIZES
    kept = after.state_dict()
    for name, value in before.state_dict().items():
        assert torch.equal(kept[name], value), name
    images, texts = encoded(after, pictures)
    tokens = (EncodedItems.of(each.arrays()).tokens for each in (images, texts))
    # The start of the stage: with 72 photos, all of them.
    fit = fit_learned_stage(*tokens, SIZES.dim, bank=SIZES.bank, hidden=SIZES.hidden)
    before.add_first_stage(SIZES)
    assert before.first_stage is not None
    nothing = distance(before, images, texts)
    before.first_stage.load(fit)
    fitted, trained = distance(before, images, texts), distance(after, images, texts)
    assert fitted < 0.7 * nothing
    assert trained < 0.8 * fitted
    assert "first_stage" in result.validation["first-stage"]
    stage = read_first_stage(result.checkpoint)
    assert stage is not None
    assert stage.dim == SIZES.dim


def test_a_trained_head_is_trained_on_and_a_reset_fits_it_again(
    tiny_checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    slow = ("final.epochs=1", "final.lr=1e-12")
    first = run_recipe(recipe_of(tiny_checkpoint, pictures, tmp_path, *slow), tmp_path / "first")
    fitted = load_checkpoint(first.checkpoint).model
    assert fitted.first_stage is not None
    with torch.no_grad():
        fitted.first_stage.centre += 1
    save_checkpoint(tmp_path / "moved", fitted)

    def centre(name: str, *more: str) -> torch.Tensor:
        recipe = recipe_of(tmp_path / "moved", pictures, tmp_path, *slow, *more)
        head = load_checkpoint(run_recipe(recipe, tmp_path / name).checkpoint).model.first_stage
        assert head is not None
        return head.centre.detach()

    moved = fitted.first_stage.centre.detach()
    torch.testing.assert_close(centre("on"), moved)
    again = centre("again", 'final.reset=["first_stage"]')
    torch.testing.assert_close(again, moved - 1, rtol=1e-3, atol=1e-3)
    other = centre("sizes", "model.first_stage.dim=4")
    assert other.shape == (4,)
    # A stage that changes the tokens leaves no head of other tokens behind.
    changed = ('final.train=["image_trunk"]', 'final.tasks={"alignment": {"loss": "triplet"}}')
    assert not bool(centre("tokens", *changed).any())
    kept = ('final.train=["matching"]', 'final.tasks={"matching": {"loss": "triplet"}}')
    torch.testing.assert_close(centre("matching", *kept), moved)


def test_the_loss_is_that_of_centred_scores(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny(first_stage=SIZES)
    assert model.first_stage is not None
    torch.manual_seed(3)
    for value in model.first_stage.parameters():
        torch.nn.init.normal_(value, std=0.5)
    options = {"temperature": 3.0, "teacher_scale": 2.0}
    task = TaskConfig(loss="listnet", options=options)
    stage = StageConfig(name="s", train=("first_stage",), tasks={"first_stage_distillation": task})
    assert stage.trained_scores == {"first_stage"}
    photos = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    texts = model.text.encoder.preprocess(["two dogs", "a red circle", "green grass"])
    report = JointTask(model, stage).eval()(Batch(photos, texts, negative_mask(torch.arange(3))))
    with torch.no_grad():
        both = model.encode_images(photos), model.encode_texts(texts)
        own, taught = (model.scores(name, *both) for name in ("first_stage", "alignment"))
        expected = ListNetLoss(**options)(own - own.mean(0), taught - taught.mean(0))
    torch.testing.assert_close(report.total.detach(), expected)
    report.total.backward()
    trained = {name for name, value in model.named_parameters() if value.grad is not None}
    assert trained == {f"first_stage.{name}" for name, _ in model.first_stage.named_parameters()}


def test_what_cannot_be_trained_is_refused_before_anything_is_encoded(
    tiny_checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "headless.toml"
    recipe.write_text(f"""
name = "headless"
start = "{tiny_checkpoint}"
[data]
source = "{pictures}"
cache = "{tmp_path / "cache"}"
[[stage]]
name = "only"
[stage.tasks.first_stage_distillation]
loss = "listnet"
""")
    with pytest.raises(
        ConfigError, match=r"needs a network with a first-stage head; add .*first_stage\]"
    ):
        prepare_run(load_recipe(recipe), NullProgress())
    with pytest.raises(ConfigError, match="and first_stage, can be set with it"):
        load_recipe(recipe, ["model.alignment.dim=3"])
    with pytest.raises(ConfigError, match=r"start\.first_stage\.dims: unknown key"):
        load_recipe(recipe, ["model.first_stage.dims=3"])
    few = recipe_of(tiny_checkpoint, pictures, tmp_path, "final.captions_per_photo=2")
    with pytest.raises(ConfigError, match="at least 200 texts to fit the first stage to, got 144"):
        run_recipe(few, tmp_path / "few")
