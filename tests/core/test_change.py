"""What a tape writes instead of a whole reading gives that reading back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.core.change import change, changed

leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab0", max_size=2)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), trees), st.dictionaries(st.sampled_from("abc"), trees))
def test_there_and_back(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changed(before, change(before, after)) == after
    assert change(after, after) == {}


def test_only_what_differs_is_told() -> None:
    before = {"gpus": [{"i": 0, "w": 100}, {"i": 1, "w": 200}], "driver": "580", "gone": 1}
    after = {"gpus": [{"i": 0, "w": 101}, {"i": 1, "w": 200}], "driver": "580"}
    assert change(before, after) == {"gpus": {"0": {"w": [101]}}, "gone": None}


@pytest.mark.parametrize("by", [{"gone": None}, {"a": {"b": [1]}}, {"list": {"7": [1]}}, {"list": {"x": [1]}}])
def test_a_change_that_does_not_fit_is_refused(by: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        changed({"a": 1, "list": [{}]}, by)
