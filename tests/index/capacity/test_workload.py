import pytest

from aladin_index.capacity.workload import Workload
from aladin_network.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("items", 0),
        ("embedding_dim", -1),
        ("tokens", 0),
        ("queries_per_s", 0.0),
        ("p95_ms", float("nan")),
        ("photos_per_s", 0.0),
        ("machine_cores", 0),
    ],
)
def test_nothing_and_less_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected more than 0, got {value}"):
        Workload(**{"items": 10, name: value})  # type: ignore[arg-type]


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ConfigError, match="queries_per_s: expected a finite number, got inf"):
        Workload(items=10, queries_per_s=float("inf"))


def test_a_form_that_tokens_do_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of float16, int8, 4bit, 2bit, got '3bit'"):
        Workload(items=10, token_dtype="3bit")  # type: ignore[arg-type]
