"""What a read waits for."""

from __future__ import annotations

import pytest

from aladin_index.engines import connection as consistency
from aladin_index.engines.connection import Consistency
from aladin_network.errors import ConfigError

URL = "http://test-consistency:1"


def test_reads_wait_for_the_writes_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(consistency.time, "monotonic", lambda: now_s)
    writer, reader = Consistency(URL, None), Consistency(URL, "session")
    assert reader.of_read("a") == {"consistency_level": "Bounded"}
    writer.note_write("a", 70)
    writer.note_write("a", 60)  # of another thread, which was overtaken
    waits = {"consistency_level": "Customized", "guarantee_timestamp": 70}
    assert reader.of_read("a") == waits
    assert reader.of_read("b") == {"consistency_level": "Bounded"}
    assert Consistency("http://other:1", None).of_read("a") == {"consistency_level": "Bounded"}
    now_s += 9.9
    assert reader.of_read("a") == waits
    now_s += 0.2
    assert reader.of_read("a") == {"consistency_level": "Bounded"}


@pytest.mark.parametrize("level", ["strong", "bounded", "eventually"])
def test_other_levels_are_the_server_s(level: str) -> None:
    chosen = Consistency(URL, level)
    chosen.note_write("a", 90)
    assert chosen.of_read("a") == {"consistency_level": level.capitalize()}


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="consistency: expected one of session, strong"):
        Consistency(URL, "quorum")
