"""An index of files that was upgraded to another model, pushed to where the old model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.push import PushReport, rollback_engine
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint_files import read_model_id
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.upgrade.conftest import SETTINGS


def test_a_push_of_an_upgraded_index_brings_its_model_and_a_rollback_the_old_one(
    push: Callable[..., PushReport],
    server: MemoryServer,
    index_copy: Path,
    new_checkpoint: Path,
    tmp_path: Path,
) -> None:
    old_id = read_model_id(index_copy / "model")
    push(index_copy)
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert push(index_copy).generation == 2

    def live_model() -> str:
        return open_engine_index(tmp_path / "remote", MemoryEngine(server)).checkpoint.model_id

    assert live_model() == read_model_id(new_checkpoint)
    assert rollback_engine(MemoryEngine(server)) == 1
    assert live_model() == old_id
