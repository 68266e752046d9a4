"""``aladin index build`` and ``merge`` with all their options."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aladin_index.building import builder
from aladin_index.building.builder import BuildReport
from aladin_index.cluster.pool import WorkerSettings
from aladin_index.settings import BuildSettings
from aladin_network.errors import ClusterError
from aladin_service.cli import app
from aladin_service.commands.index.build_options import fields_of


def aladin(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_options_reach_the_build(
    tmp_path: Path, tiny_checkpoint: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[BuildSettings] = []
    build = builder.build_index

    def build_index(*arguments: Any) -> BuildReport:
        given.append(arguments[4])
        return build(*arguments[:4])  # these few photos cannot be built as the options say

    monkeypatch.setattr("aladin_index.building.builder.build_index", build_index)
    source = ["--model", tiny_checkpoint, "--images", data_file, "--out", tmp_path / "out"]
    assert aladin("index", "build", *source).exit_code == 0
    options = ["--ann", "IVF16,SQ8", "--memory-budget", "8GiB", "--ann-recall", "0.95"]
    options += ["--tokens", "4bit", "--filter-fields", "year, author", "--shards", "7"]
    options += ["--part", "2/3", "--batch-size", "16", "--readers", "5", "--device", "auto"]
    assert aladin("index", "build", *source, *options, "--resume").exit_code == 0
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--part", "2-3"], "expected a part such as 1/4, got '2-3'"),
        (["--part", "4/3"], "part: expected a number from 1 to 3, got 4"),
        (["--ray-workers", "2"], "--ray-workers: expected also --ray"),
        (["--ray-cpus", "2"], "--ray-cpus: expected also --ray"),
        (["--ray", "somewhere"], "'somewhere': expected HOST:PORT"),
        (["--memory-budget", "much"], "expected a size such as 8GiB, got 'much'"),
        (["--ann-recall", "1.5"], "ann_recall: expected more than 0 and at most 1, got 1.5"),
        (["--tokens", "1bit"], "'1bit' is not one of"),
    ],
)
def test_impossible_options_are_the_users_mistake(
    tmp_path: Path, tiny_checkpoint: Path, data_file: Path, options: list[str], message: str
) -> None:
    source = ["--model", tiny_checkpoint, "--images", data_file, "--out", tmp_path / "out"]
    result = aladin("index", "build", *source, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_options_reach_the_workers_of_a_cluster(
    tmp_path: Path, tiny_checkpoint: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster itself is that of tests/index/cluster."""
    gpus, given = {"GPU": 3.0}, []

    @contextmanager
    def connected(address: str) -> Generator[Any]:
        yield SimpleNamespace(address=address, cluster_resources=lambda: gpus)

    @contextmanager
    def ray_encoding(*arguments: Any) -> Generator[None]:
        given.append(arguments)
        yield None  # and so it is this process that encodes

    monkeypatch.setattr("aladin_index.cluster.ray_encoding.connected", connected)
    monkeypatch.setattr("aladin_index.cluster.ray_encoding.ray_encoding", ray_encoding)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    source = ["--model", tiny_checkpoint, "--images", data_file, "--out", tmp_path / "out"]
    assert aladin("index", "build", *source, "--ray", "head:6379").exit_code == 0
    options = ["--ray-workers", "5", "--ray-cpus", "4", "--readers", "9"]
    # Without a card here, there may be some on the nodes.
    devices = [(*options, "--device", "cpu"), (*options, "--device", "cuda"), ("--device", "auto")]
    for more in devices:
        with monkeypatch.context() as patch:
            patch.setattr("aladin_index.building.builder.build_index", stop)
            words = [*source, "--replace", "--ray", "head:6379", *more]
            assert aladin("index", "build", *words).exit_code == 1
    assert [ray.address for ray, *_ in given] == ["head:6379"] * 4
    assert [settings.device for _, _, settings, *_ in given] == ["cpu", "cpu", "cuda", "cuda"]
    assert [settings.readers for _, _, settings, *_ in given] == [1, 9, 9, 1]
    few, many = WorkerSettings(), WorkerSettings(cpus=4, workers=5)
    assert [workers for _, _, _, workers, _ in given] == [
        few,
        many,
        replace(many, gpus=1),
        replace(few, gpus=1),
    ]


def stop(*_: object) -> None:
    raise ClusterError("enough was seen")


def test_fields_are_named_with_commas() -> None:
    assert fields_of(None) is None
    assert fields_of("") == ()
    assert fields_of("a, b,") == ("a", "b")


def test_parts_are_built_and_merged(tmp_path: Path, tiny_checkpoint: Path, data_file: Path) -> None:
    parts = [tmp_path / "one", tmp_path / "two"]
    for number, part in enumerate(parts, start=1):
        result = aladin(
            *["index", "build", "--model", tiny_checkpoint, "--images", data_file],
            *["--texts", data_file, "--batch-size", 2, "--part", f"{number}/2", "--out", part],
        )
        assert result.exit_code == 0, result.stderr
    out = tmp_path / "out"
    merged = aladin("index", "merge", *parts, "--out", out, "--ann", "HNSW4,Flat")
    assert merged.exit_code == 0, merged.stderr
    whole = tmp_path / "whole"
    source = ["--images", data_file, "--texts", data_file, "--batch-size", 2]
    built = aladin("index", "build", "--model", tiny_checkpoint, *source, "--out", whole)
    assert merged.stdout == built.stdout.replace(str(whole), str(out)).replace(
        "\n", ", from 2 parts\n"
    )
    searched = [
        json.loads(aladin("search", index, "a red dog", "--json").stdout)["hits"]
        for index in (whole, out)
    ]
    assert searched[0] == searched[1]
    again = aladin("index", "merge", *parts, parts[0], "--out", tmp_path / "other")
    assert again.exit_code == 2
    assert "one: given twice" in again.stderr
