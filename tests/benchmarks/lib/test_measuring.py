"""How the benchmarks of the service tell what they measured."""

from __future__ import annotations

import json

import pytest

from benchmarks.lib.measuring import figures_parser, print_figures

_FIGURES = {"queries": 7, "saturation_ratio": 0.85649, "rates": [1.0, 2.0], "index": "made"}


def test_json_holds_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(_FIGURES, as_json=True)

    assert json.loads(capsys.readouterr().out) == _FIGURES


def test_a_table_holds_a_line_for_each_single_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(_FIGURES, as_json=False)

    assert capsys.readouterr().out.splitlines() == [
        "queries           7",
        "saturation_ratio  0.856",
        "index             made",
    ]


def test_options_that_all_have() -> None:
    parser = figures_parser("Measures.", "some seconds")

    options = parser.parse_args(["--json", "--quick"])

    assert (options.json, options.quick) == (True, True)
    assert (parser.parse_args([]).json, parser.parse_args([]).quick) == (False, False)
