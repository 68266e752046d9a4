import json
from pathlib import Path
from typing import Any

import pytest

from aladin_index.capacity.constants import Constants, read_constants, read_measurements
from aladin_network.config import dump_config
from aladin_network.errors import ConfigError, InputError


def written(folder: Path, data: Any) -> Path:
    path = folder / "constants.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_what_is_written_is_read(constants: Constants, tmp_path: Path) -> None:
    assert read_constants(written(tmp_path, dump_config(constants))) == constants


def test_the_packaged_ones_are_read() -> None:
    constants = read_constants()
    assert constants.command.startswith("python -m benchmarks.search.constants")
    sizes = [size for size, _ in constants.first_stage.flat_s]
    lists = [each.lists for each in constants.first_stage.widths]
    assert sizes == sorted(sizes)
    assert lists == sorted(lists)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "expected schema_version 1, got 2"),
        ({"more": 1}, "more: unknown key"),
        ({"search": {}}, "search.spread: Field required"),
        ({"forms": {}}, "forms: expected all of"),
    ],
)
def test_what_is_wrong_is_named(
    constants: Constants, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, dump_config(constants) | change)
    with pytest.raises(ConfigError, match=message):
        read_constants(path)


def test_nothing_measured_of_a_first_stage_is_refused(constants: Constants, tmp_path: Path) -> None:
    data = dump_config(constants)
    data["first_stage"]["widths"] = []
    with pytest.raises(ConfigError, match="expected flat_s and widths, got an empty list"):
        read_constants(written(tmp_path, data))


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("search", "page_s", -1e-4, "search.page_s: expected a finite number, at least 0"),
        ("search", "spread", float("nan"), "search.spread: expected a finite number"),
        ("engine", "items", 1, "engine.items: expected at least 2, got 1"),
        ("encoding", "photo_s", 0.0, "encoding.photo_s: expected more than 0"),
    ],
)
def test_a_number_that_nothing_takes_is_refused(
    constants: Constants, tmp_path: Path, section: str, name: str, value: float, message: str
) -> None:
    data = dump_config(constants)
    data[section][name] = value
    with pytest.raises(ConfigError, match=message):
        read_constants(written(tmp_path, data))


@pytest.mark.parametrize("content", [None, "not JSON"])
def test_a_file_that_cannot_be_read_is_the_users(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"some\.json: expected constants in JSON"):
        read_constants(path)
    with pytest.raises(InputError, match=r"some\.json: expected measurements in JSON"):
        read_measurements(path)


def test_a_list_is_no_constants(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected schema_version 1, got list"):
        read_constants(written(tmp_path, []))
