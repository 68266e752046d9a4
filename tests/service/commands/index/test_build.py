"""``aladin index build``, ``merge``, ``info`` and ``verify``: options, sources, what they say."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from aladin_index.ann import coarse_quantiser
from aladin_index.building import builder
from aladin_index.building.builder import BuildReport
from aladin_index.cluster.pool import WorkerSettings
from aladin_index.generations.info import describe
from aladin_index.open import open_backend
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import ClusterError
from aladin_network.types import Target
from aladin_service.commands.index.build_options import fields_of
from aladin_service.commands.index.several_sources import repeat_option
from tests.index.fake_gpu_faiss import FakeGpuFaiss
from tests.service.commands.conftest import aladin, aladin_json, write_lines


def ids(index: Path, target: Target = "images") -> list[str]:
    with closing(open_backend(index)) as opened:
        collection = opened.collection(target)
        return sorted(item.id for item in collection.items.by_rows(range(collection.count)))


@pytest.fixture
def source(tiny_checkpoint: Path, data_file: Path, tmp_path: Path) -> list[object]:
    return ["--model", tiny_checkpoint, "--images", data_file, "--out", tmp_path / "out"]


def test_options_reach_the_build(source: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[BuildSettings] = []
    build = builder.build_index

    def build_index(*arguments: Any) -> BuildReport:
        given.append(arguments[4])
        return build(*arguments[:4])  # these few photos cannot be built as the options say

    monkeypatch.setattr("aladin_index.building.builder.build_index", build_index)
    aladin("index", "build", *source)
    options = ["--ann", "IVF16,SQ8", "--memory-budget", "8GiB", "--ann-recall", "0.95"]
    options += ["--tokens", "4bit", "--filter-fields", "year, author", "--shards", "7"]
    options += ["--part", "2/3", "--batch-size", "16", "--readers", "5", "--device", "auto"]
    aladin("index", "build", *source, *options, "--resume")
    plain, full = given
    assert plain == BuildSettings(readers=plain.readers, replace=False)
    assert full == BuildSettings(
        ann="IVF16,SQ8",
        memory_budget_bytes=8 * 2**30,
        ann_recall=0.95,
        token_dtype="4bit",
        filter_fields=("year", "author"),
        shards=7,
        part=(2, 3),
        batch_size=16,
        readers=5,
        device=full.device,
        resume=True,
        replace=False,
    )
    assert (fields_of(None), fields_of(""), fields_of("a, b,")) == (None, (), ("a", "b"))


def test_options_reach_the_workers_of_a_cluster(
    source: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a card here, nodes may have one; the cluster is that of tests/index/cluster."""
    given: list[Any] = []

    @contextmanager
    def connected(address: str) -> Generator[Any]:
        yield SimpleNamespace(address=address, cluster_resources=lambda: {"GPU": 3.0})

    @contextmanager
    def ray_encoding(*arguments: Any) -> Generator[None]:
        given.append(arguments)
        yield None

    def stop(*_: object) -> None:
        raise ClusterError("enough was seen")

    monkeypatch.setattr("aladin_index.cluster.ray_encoding.connected", connected)
    monkeypatch.setattr("aladin_index.cluster.ray_encoding.ray_encoding", ray_encoding)
    monkeypatch.setattr("aladin_index.building.builder.build_index", stop)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    options = ["--ray-workers", "5", "--ray-cpus", "4", "--readers", "9"]
    devices = [[], [*options, "--device", "cpu"], [*options, "--device", "cuda"]]
    for more in (*devices, ["--device", "auto"]):
        aladin("index", "build", *source, "--ray", "head:6379", *more, code=1)
    few, many = WorkerSettings(), WorkerSettings(cpus=4, workers=5)
    found = [
        (ray.address, settings.device, settings.readers, workers)
        for ray, _, settings, workers, *_ in given
    ]
    assert found == [
        ("head:6379", "cpu", 1, few),
        ("head:6379", "cpu", 9, many),
        ("head:6379", "cuda", 9, replace(many, gpus=1)),
        ("head:6379", "cuda", 1, replace(few, gpus=1)),
    ]


@pytest.mark.parametrize(("device", "cards"), [("cuda", 0), ("cuda", 1), ("auto", 0), ("cpu", 0)])
def test_a_card_that_faiss_cannot_build_on_is_told_of_beforehand_where_it_was_asked_for(
    source: list[object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    device: str,
    cards: int,
) -> None:
    given: list[BuildSettings] = []

    def stop(*arguments: Any) -> None:
        given.append(arguments[4])
        raise ClusterError("enough was seen")

    monkeypatch.setattr("aladin_index.building.builder.build_index", stop)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(coarse_quantiser, "faiss", FakeGpuFaiss(cards))
    aladin("index", "build", *source, "--device", device, code=1)
    assert given[0].device == ("cpu" if device == "cpu" else "cuda")
    told = ["building the first stage on the CPU: FAISS finds no GPU"]
    assert caplog.messages == (told if (device, cards) == ("cuda", 0) else [])


@pytest.mark.parametrize(
    ("words", "needs_argument", "expected"),
    [
        ("IX --images a b", True, "IX --images a --images b"),
        ("IX --images a --images b", True, "IX --images a --images b"),
        ("--images a b IX", True, "--images a --images b IX"),
        ("--images a IX", True, "--images a IX"),
        ("--images a --texts t IX", True, "--images a --texts t IX"),
        ("--images a b --texts t u", False, "--images a --images b --texts t --texts u"),
        ("--images=a b IX --no-exif", True, "--images=a --images b --no-exif IX"),
        ("--images a b -- IX", True, "--images a --images b -- IX"),
        ("--split val IX --images a b", True, "--split val IX --images a --images b"),
        ("--no-exif IX --images a b", True, "--no-exif IX --images a --images b"),
        ("IX --images a b --split val c", True, "IX --images a --images b --split val c"),
        ("IX --images", True, "IX --images"),
    ],
)
def test_each_word_after_the_option_is_a_value_of_it(
    words: str, needs_argument: bool, expected: str
) -> None:
    found = repeat_option(words.split(), {"--no-exif"}, needs_argument=needs_argument)
    assert found == expected.split()


def test_several_sources_are_one_index(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    """As a shell writes them; what two hold is indexed once, and a broken photo is named."""
    folder, index = tmp_path / "photos", tmp_path / "index"
    folder.mkdir()
    for number in range(5):
        Image.new("RGB", (40, 40), (40 * number, 90, 200)).save(folder / f"{number}.png")
    (folder / "broken.png").write_text("no photo")
    texts = [write_lines(tmp_path / f"{name}.jsonl", {"id": name, "text": name}) for name in "tuv"]
    files = [folder / name for name in ("0.png", "broken.png", "1.png")]
    build = ["index", "build", "--model", tiny_checkpoint, "--images", *files]
    built = aladin(*build, "--texts", texts[0], "--texts", texts[1], "--out", index)
    assert "generation 1, 2 images, 2 texts, 1 skipped" in built.stdout
    assert "skipped broken.png: " in built.stderr and "outside of" not in built.stderr
    assert (ids(index), ids(index, "texts")) == (["0.png", "1.png"], ["t", "u"])
    added = aladin("index", "add", index, "--images", folder / "2.png", folder / "3.png")
    assert f"{index}: images: 2 added" in added.stdout
    added = aladin("index", "add", "--images", folder / "4.png", "--texts", texts[2], index)
    assert f"{index}: images: 1 added" in added.stdout and "texts: 1 added" in added.stdout

    build = ["index", "build", "--model", tiny_checkpoint, "--out", tmp_path / "all", "--images"]
    built = aladin(*build, folder, folder / "0.png", data_file)
    assert "skipped 0.png: images: id '0.png' repeats" in built.stderr
    assert len(ids(tmp_path / "all")) == 5 + 6


def test_photos_outside_of_all_sources_are_warned_of(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    Image.new("RGB", (40, 40), "red").save(first / "red.png")
    (second / "link.png").symlink_to(first / "red.png")  # in another source, which is shown too
    (second / "away.png").symlink_to(photos / "a.png")
    build = ["index", "build", "--model", tiny_checkpoint, "--images", first, second]
    said = aladin(*build, "--out", tmp_path / "index").stderr
    assert f"photos outside of {first} and {second}: 1 (1 by a link)" in said


def test_a_first_stage_that_finds_less_than_was_asked_for_is_a_warning(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = "warning: images: IVF3,Flat finds 0."
    build = ["index", "build", "--model", tiny_checkpoint, "--images", data_file]
    exact, lists = tmp_path / "exact", ["--ann", "IVF3,Flat"]
    assert "warning" not in aladin(*build, "--out", exact).stderr
    # One list of three is searched, whatever was wanted.
    monkeypatch.setattr("aladin_index.ann.ann_index.AnnIndex.widths", [1])
    built = aladin(*build, "--out", tmp_path / "lists", *lists).stderr
    assert warning in built and "0.99 was wanted" in built
    assert warning in aladin("index", "merge", exact, "--out", tmp_path / "merged", *lists).stderr
    aladin("index", "export", exact, "--out", tmp_path / "out")
    taken = ["--model", tiny_checkpoint, "--out", tmp_path / "imported", *lists]
    assert warning in aladin("index", "import", tmp_path / "out", *taken).stderr
    hit = aladin_json("search", tmp_path / "lists", "a dog")["hits"][0]
    aladin("index", "delete", tmp_path / "lists", hit["id"], "--target", "images")
    assert warning in aladin("index", "compact", tmp_path / "lists").stderr


def test_an_index_is_described_and_a_changed_file_of_it_is_found(
    tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    index, source = tmp_path / "index", ["--images", data_file, "--texts", data_file]
    options = ["--split", "test", "--tokens", "int8", "--ann", "exact", "--shards", 2]
    built = aladin("index", "build", "--model", tiny_checkpoint, *source, *options, "--out", index)
    assert built.stdout == f"{index}: generation 1, 5 images, 10 texts\n"
    info, shown = aladin_json("index", "info", index), aladin("index", "info", index).stdout
    facts = info["generation"], info["texts"]["count"], info["images"]["token_dtype"]
    assert facts == (1, 10, "int8")
    assert info["model"]["id"] in shown and "int8" in shown
    assert "sound" in aladin("index", "verify", index).stdout
    file = index / "generations/000001/images/embeddings.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    damaged = aladin("index", "verify", index, code=1)
    assert "embeddings.npy" in damaged.stderr and damaged.stdout == ""


def test_an_index_goes_out_and_comes_in_again(
    tiny_checkpoint: Path, index_folder: Path, tmp_path: Path
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    exported = aladin("index", "export", index_folder, "--out", out)
    assert exported.stdout == f"{out}: 6 images, 12 texts\n"
    words = ["--model", tiny_checkpoint, "--out", again, "--tokens", "int8", "--ann", "exact"]
    imported = aladin("index", "import", out, *words, "--filter-fields", "number")
    assert imported.stdout == f"{again}: generation 1, 6 images, 12 texts\n"
    words = ["a red dog runs", "-k", 6, "--filter", '{"number": {"lt": 5}}']
    before, after = (aladin_json("search", index, *words) for index in (index_folder, again))
    assert {hit["id"] for hit in after["hits"]} == {hit["id"] for hit in before["hits"]}
    assert after["reranked"]


def test_probabilities_are_described_and_those_of_other_photos_warned_of(
    calibrated_index: Path,
    index_folder: Path,
    checkpoint: Path,
    data_file: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    assert aladin_json("index", "info", index_folder)["calibration"] is None
    shown = " ".join(aladin("index", "info", calibrated_index).stdout.split())
    assert "fitted on data captions.jsonl, split val, photos 40, texts 40," in shown
    fitted_on = aladin_json("index", "info", calibrated_index)["calibration"]["fitted_on"]
    assert fitted_on["photos"] == 40 and "data_sample" not in fitted_on

    made, facts = make_calibration("any"), describe(index_folder)
    assert facts.warnings() == replace(facts, calibration=made).warnings() == []
    [warning] = replace(facts, calibration=replace(made, other_photos=True)).warnings()
    assert warning.startswith("the probabilities are not used: they were fitted on captions.jsonl")
    write_calibration(checkpoint, make_calibration(read_model_id(checkpoint), data=["else.jpg"]))
    build = ["index", "build", "--model", checkpoint, "--images", data_file]
    said = aladin(*build, "--out", tmp_path / "out").stderr.splitlines()
    [line] = [line for line in said if "probabilities" in line]
    assert line.startswith("warning: the probabilities are not used")
