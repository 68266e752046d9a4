from pathlib import Path

import pytest

from tests.service.client.sync_source import MODULES, sync_source


@pytest.mark.parametrize("target", MODULES, ids=lambda path: path.name)
def test_a_synchronous_module_is_the_one_that_its_asynchronous_one_makes(target: Path) -> None:
    assert target.read_text(encoding="utf-8") == sync_source(MODULES[target])
