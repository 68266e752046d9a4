"""Without the package of a door, one line names the extra that brings it."""

from __future__ import annotations

import importlib
import sys

import pytest

from aladin_network.errors import ConfigError


def test_sentence_transformers_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "aladin_search.integrations.sentence_transformers"
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'aladin-search\[sentence-transformers\]'"):
        importlib.import_module(module)


@pytest.mark.parametrize("module", ["mteb", "mteb_tasks"])
def test_mteb_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("mteb", "mteb_inputs", "mteb_tasks"):
        monkeypatch.delitem(sys.modules, f"aladin_search.integrations.{name}", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'aladin-search\[mteb\]'"):
        importlib.import_module(f"aladin_search.integrations.{module}")
