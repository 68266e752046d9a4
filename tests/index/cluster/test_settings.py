from typing import Any

import pytest

from aladin_index.cluster.pool import WorkerSettings
from aladin_network.errors import ConfigError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpus": 0}, "cpus: expected at least 1, got 0"),
        ({"gpus": -1}, "gpus: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"start_timeout_s": 0.0}, "start_timeout_s: expected more than 0, got 0"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerSettings(**change)
