"""Fixtures that several folders of tests share."""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import shutil
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import torch
import typer.main
import typer.testing
import uvicorn
from fastapi import FastAPI

from aladin_network.calibration.calibration import (
    Calibration,
    DataSample,
    DirectionCalibration,
    FittedOn,
)
from aladin_network.calibration.figures import CalibrationFigures
from aladin_network.calibration.fitted_files import UNCORRECTED
from aladin_network.calibration.judging import LogisticModel
from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.encoders.registry import IMAGE_ENCODERS, TEXT_ENCODERS, text_encoder_class
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.model import AladinModel
from benchmarks.lib.milvus_server import MilvusServer
from tests.milvus_needed import HAS_MILVUS, WITHOUT_MILVUS

CAPTIONS = [
    "a small red circle above a striped blue square",
    "two dogs run on the green grass",
    "a man rides a motorcycle in the street",
    "the yellow star is left of a white triangle",
]

# New objects until garbage is looked for: Python's 700 cost the tests 3 % of their time.
_GC_THRESHOLD = 10_000


def tiny_config(**changes: object) -> ModelConfig:
    """A network of some thousand parameters: ViT on 32 x 32 px (4 x 4 regions), 2-layer BERT."""
    trunk = TrunkConfig(width=16, layers=1, heads=2, feedforward=32, dropout=0.1)
    parts: dict[str, object] = {
        "image_encoder": ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "image_size": 32,
                "patch_size": 8,
            },
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        ),
        "text_encoder": TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 20,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "max_position_embeddings": 64,
            },
            max_tokens=32,
        ),
        "image_tower": TowerConfig(trunk=trunk),
        "text_tower": TowerConfig(trunk=trunk),
        "alignment": AlignmentHeadConfig(dim=8),
        "matching": MatchingHeadConfig(layers=1, heads=2),
    }
    return ModelConfig(**(parts | changes))  # type: ignore[arg-type]


def tiny_model(**changes: object) -> AladinModel:
    """A random `tiny_config` network in evaluation mode, the same at every call."""
    torch.manual_seed(7)
    config = tiny_config(**changes)
    tokenizer = text_encoder_class(config).learn_tokenizer(CAPTIONS, 400)
    return AladinModel.create(config, tokenizer).eval()


@pytest.fixture(scope="session")
def build_tiny() -> Callable[..., AladinModel]:
    """`tiny_model`, to be called with what differs from `tiny_config`."""
    return tiny_model


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of `tiny_model`."""
    folder = tmp_path_factory.mktemp("tiny") / "checkpoint"
    save_checkpoint(folder, tiny_model())
    return folder


@pytest.fixture(scope="session")
def new_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a network with other weights and sizes than `tiny_checkpoint`."""
    folder = tmp_path_factory.mktemp("new") / "checkpoint"
    heads = AlignmentHeadConfig(dim=12), MatchingHeadConfig(layers=1, heads=2, dim=24)
    save_checkpoint(folder, tiny_model(alignment=heads[0], matching=heads[1]))
    return folder


@pytest.fixture(scope="session")
def exported_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny_checkpoint` with its ONNX graphs; skips where the packages are not installed."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from aladin_network.graphs.export import export_graphs

    folder = tmp_path_factory.mktemp("graphs") / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    export_graphs(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def conversions_here() -> Generator[None]:
    """Convert models by name in this process, which has loaded torch; one test does not."""
    from aladin_network.conversion import named_models
    from aladin_network.conversion.apart import convert_here

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named_models, "convert_apart", convert_here)
        yield


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkpoints whose graphs jobs would export; nothing is exported."""
    asked: list[Path] = []
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    monkeypatch.setattr("aladin_network.graphs.export.export_graphs", asked.append)
    return asked


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CLIP with random weights, in the files that the hub has of one."""
    from tests.dual_encoders import save_dual_encoder

    folder = tmp_path_factory.mktemp("transformers") / "small-clip"
    save_dual_encoder("clip", folder)
    return folder


def made_up_calibration(model_id: str, photos: int = 40, data: Iterable[str] = ()) -> Calibration:
    """Return a calibration with coefficients that are easy to work with by hand.

    Log-odds of texts that ask for photos: of a hit ``3 match + align / 4 + gap / 2`` less half the
    logarithm of the words, where the gap is that of the alignment scores; of any match those that
    any of the ten likeliest is right, plus the gap of the best. Of photos that ask for texts: 1
    less each. Its data set has the photos `data`; without any, an index takes it for its own.
    """

    def direction(less: float) -> DirectionCalibration:
        return DirectionCalibration(
            aligned=True,
            hit=LogisticModel(
                intercept=less, weights=[3.0, 0.25, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, -0.5, 0.0]
            ),
            match=LogisticModel(intercept=less, weights=[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
            no_match_below=-20.0,
            figures=CalibrationFigures(ece=0.02, auroc=0.9, false_alarms=0.05, detected=0.4),
        )

    return Calibration(
        model_id=model_id,
        text_to_image=direction(0.0),
        image_to_text=direction(-1.0),
        fitted_on=FittedOn(
            data="captions.jsonl",
            split="val",
            photos=photos,
            texts=photos,
            short_texts=7,
            searched="split",
            data_sample=DataSample.of(data),
            correction=UNCORRECTED,
        ),
        measured_on="out of fold",
    )


@pytest.fixture(scope="session")
def make_calibration() -> Callable[..., Calibration]:
    """`made_up_calibration`, to be called with the id of a model."""
    return made_up_calibration


@pytest.fixture(scope="session")
def serve_in_thread() -> Callable[..., AbstractContextManager[str]]:
    """Serves an application on a socket of this machine: ``with serve_in_thread(app) as url``."""

    @contextmanager
    def run(app: FastAPI, port: int = 0) -> Generator[str]:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        with socket.create_server(("127.0.0.1", port)) as listener:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join(timeout=20)
                assert not thread.is_alive()

    return run


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while the tests are imported: nearly everything stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempt what is loaded by now from garbage collection: it stays until the end.

    Every full collection would look through all modules and tests. The encoders are imported for
    the same reason; nearly every file of tests builds some.
    """
    for place in (*IMAGE_ENCODERS.values(), *TEXT_ENCODERS.values()):
        importlib.import_module(place.partition(":")[0])
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


@pytest.fixture(scope="session", autouse=True)
def command_trees() -> Iterator[None]:
    """Make the commands of an application once: Typer's runner does so at every call.

    The tree does not change, and making it takes longer than most commands.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_graphs_unasked() -> Iterator[None]:
    """Have no job export graphs, nor encode with them, where a test does not ask for it.

    An export takes ten seconds even for a tiny network.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALADIN_RUNTIME", "torch")
        yield


@pytest.fixture(scope="session", autouse=True)
def no_libraries_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Look for photo libraries in an empty folder: what a test finds is what it made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Keep tiny computations on one thread: on a busy machine, waiting for a second costs more."""
    import faiss

    before = compute_threads(), faiss.omp_get_max_threads()
    set_compute_threads(1)
    faiss.omp_set_num_threads(1)
    yield
    set_compute_threads(before[0])
    faiss.omp_set_num_threads(before[1])


@pytest.fixture(autouse=True)
def log_levels_as_before() -> Iterator[None]:
    """Give this project's loggers their levels again: a command sets them for its process."""
    names = ("network", "training", "index", "service", "search")
    loggers = [logging.getLogger(name) for name in ("service", *(f"aladin_{of}" for of in names))]
    levels = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Fail a test that leaves another number of threads, for sums of later ones differ by it."""
    yield
    assert (compute_threads(), torch.get_num_threads()) == (1, 1)


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MilvusServer]:
    """A real Milvus with nothing in it; tests take names of their own."""
    if not HAS_MILVUS:
        pytest.skip(WITHOUT_MILVUS)
    with MilvusServer(tmp_path_factory.mktemp("milvus")) as server:
        yield server
