"""Presets, plans, prompts, addresses and bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.bench.negotiate import words_for
from decodetop.bench.plan import (
    REQUESTS_MAX,
    Overrides,
    choose,
    fitting,
    load_presets,
    parse_presets,
    parse_slo,
    plans_of,
    several,
)
from decodetop.bench.prompts import FIRST_ID, IDS, WORDS, Prompts
from decodetop.bench.reading import Api, Plan
from decodetop.bench.request import Dialect, address, body, head
from decodetop.errors import ConfigError, UsageError

SHIPPED = load_presets()


def test_shipped_presets() -> None:
    assert [preset.name for preset in SHIPPED] == ["single", "sweep", "long", "ladder"]
    single, sweep, long, _ = SHIPPED
    assert (single.streams, single.output_tokens) == ((1,), 256)
    assert sweep.streams == (1, 2, 4, 8, 16, 32)
    assert long.input_tokens == 16_000


def test_own_presets_add_and_replace(tmp_path: Path) -> None:
    own = tmp_path / "presets.toml"
    own.write_text('[mine]\nstreams = [3]\n[single]\ntitle = "other"\noutput_tokens = 9\n')
    found = load_presets(own)
    assert [preset.name for preset in found] == ["single", "sweep", "long", "ladder", "mine"]
    assert choose(found, "single").output_tokens == 9
    assert choose(found, "mine").streams == (3,)
    assert load_presets(tmp_path / "none.toml") == SHIPPED


@pytest.mark.parametrize(
    "text",
    [
        "[x",
        "x = 1",
        "[x]\nstream = [1]",
        "[x]\nstreams = []",
        "[x]\noutput_tokens = 0",
        "[x]\nstreams = [5000]",
        "[x]\ninput_tokens = []",
    ],
)
def test_a_wrong_presets_file_is_named(tmp_path: Path, text: str) -> None:
    own = tmp_path / "presets.toml"
    own.write_text(text)
    with pytest.raises(ConfigError, match=r"presets\.toml"):
        load_presets(own)


def test_a_sweep_is_a_plan_per_number_of_streams_each_with_its_own_seed() -> None:
    plans = plans_of(choose(SHIPPED, "sweep"), "http://x", 100)
    assert [plan.streams for plan in plans] == [1, 2, 4, 8, 16, 32]
    assert [plan.seed for plan in plans] == list(range(100, 106))
    assert [plan.requests for plan in plans] == [3 * plan.streams for plan in plans]
    assert [plan.warmup_requests for plan in plans] == [plan.streams for plan in plans]


def test_a_ladder_is_a_plan_per_input_length_as_far_as_the_model_holds_it() -> None:
    ladder = choose(SHIPPED, "ladder")
    plans = plans_of(ladder, "http://x", 5)
    assert [plan.input_tokens for plan in plans] == [1000, 4000, 16000, 64000] and several(ladder, Overrides())
    assert len({plan.seed for plan in plans}) == 4
    assert [plan.input_tokens for plan in fitting(plans, 16128)] == [1000, 4000, 16000]
    assert fitting(plans, 16) == plans == fitting(plans, None)  # the server is to say it itself
    (one,) = plans_of(ladder, "http://x", 5, Overrides(input_tokens=70))
    assert one.input_tokens == 70 and not several(ladder, Overrides(input_tokens=70))
    (mine,) = parse_presets("[mine]\nstreams = [1, 2]\ninput_tokens = [8, 16]\n", "f")
    assert [(plan.streams, plan.input_tokens) for plan in plans_of(mine, "u", 1)] == [(1, 8), (1, 16), (2, 8), (2, 16)]


def test_a_time_ends_a_run_instead_of_a_number() -> None:
    (plan,) = plans_of(choose(SHIPPED, "single"), "http://x", 5, Overrides(duration_s=30.0))
    assert (plan.duration_s, plan.requests) == (30.0, REQUESTS_MAX)
    (plan,) = plans_of(choose(SHIPPED, "single"), "http://x", 5, Overrides(duration_s=30.0, requests=7))
    assert (plan.duration_s, plan.requests) == (30.0, 7)


def test_options_override_the_preset() -> None:
    asked = Overrides(streams=5, requests=7, input_tokens=9, output_tokens=11, timeout_s=2.0, api="chat", model="m")
    (plan,) = plans_of(choose(SHIPPED, "sweep"), "http://x", 1, asked)
    assert (plan.streams, plan.requests, plan.input_tokens, plan.output_tokens) == (5, 7, 9, 11)
    assert (plan.timeout_s, plan.api, plan.model, plan.preset) == (2.0, "chat", "m", "sweep")


def test_a_long_answer_gets_the_time_it_needs_unless_a_time_was_asked_for() -> None:
    single = choose(SHIPPED, "single")
    assert plans_of(single, "http://x", 1, Overrides(output_tokens=8000))[0].timeout_s == 4000
    assert plans_of(single, "http://x", 1, Overrides(output_tokens=8000, timeout_s=9.0))[0].timeout_s == 9


@pytest.mark.parametrize(
    "asked",
    [
        Overrides(streams=0),
        Overrides(streams=9999),
        Overrides(requests=0),
        Overrides(input_tokens=-1),
        Overrides(output_tokens=-5),
        Overrides(output_tokens=0),
        Overrides(request_rate_s=0.0),
        Overrides(timeout_s=0.0),
        Overrides(warmup_requests=-1),
        Overrides(shared_prefix_tokens=128),
        Overrides(input_tokens=10**12),
        Overrides(output_tokens=10**12),
        Overrides(requests=10**12),
        Overrides(warmup_requests=10**12),
        Overrides(temperature=float("nan")),
        Overrides(duration_s=0.0),
        Overrides(duration_s=float("inf")),
        Overrides(timeout_s=float("nan")),
        Overrides(request_rate_s=float("nan")),
    ],
)
def test_senseless_numbers_are_refused(asked: Overrides) -> None:
    with pytest.raises(UsageError):
        plans_of(choose(SHIPPED, "single"), "http://x", 1, asked)


@pytest.mark.parametrize("text", ["ttft=nan", "tpot=inf", "ttft=-1", "ttft=200,tpot=nan", "x=1", "ttft"])
def test_a_bound_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_slo(text)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="dubbel") as caught:
        choose(SHIPPED, "dubbel")
    assert "single, sweep, long" in caught.value.hint


@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(0, 400))
def test_prompts_have_the_exact_length_and_no_prefix_in_common(seed: int, length: int, shared: int) -> None:
    prompts = Prompts(seed, length, shared)
    first, second, warm = (json.loads(prompts.ids(index)) for index in (0, 1, -100))
    common = min(shared, length - 1)
    assert len(first) == len(second) == len(warm) == length
    assert first[:common] == second[:common] == warm[:common]
    assert len({ids[common] for ids in (first, second, warm)}) == 3
    assert all(FIRST_ID <= number < FIRST_ID + IDS for number in first)
    assert len(json.loads(prompts.words(0)).split()) == length


def test_first_tokens_differ_over_thousands_of_requests() -> None:
    prompts = Prompts(5, 20)
    firsts = {json.loads(prompts.ids(index))[0] for index in range(-200, 3000)}
    assert len(firsts) == 3200


def test_words_have_four_letters_each() -> None:
    assert {len(word) for word in WORDS} == {4}
    assert len(set(WORDS)) == len(WORDS)


def test_words_for_a_length() -> None:
    assert words_for(200, [(200, 224)]) == 176
    assert words_for(200, [(200, 1012)]) == 40
    assert words_for(200, [(200, 1012), (40, 212)]) == 38
    assert words_for(5, [(5, 30)]) >= 1


ADDRESSES = {
    "http://box:30000": ("box", 30000, False, "", "box:30000"),
    "http://box": ("box", 80, False, "", "box"),
    "https://box/v1": ("box", 443, True, "", "box"),
    "https://box:8443/llm/v1/": ("box", 8443, True, "/llm", "box:8443"),
    "http://[::1]:8000": ("::1", 8000, False, "", "[::1]:8000"),
}


@pytest.mark.parametrize("endpoint", ADDRESSES)
def test_addresses(endpoint: str) -> None:
    where = address(endpoint)
    assert (where.host, where.port, where.tls, where.prefix, where.authority) == ADDRESSES[endpoint]


@pytest.mark.parametrize("endpoint", ["box:30000", "ftp://x", "http://", "http://user:pw@x", "http://x:port"])
def test_what_is_no_address(endpoint: str) -> None:
    with pytest.raises(UsageError):
        address(endpoint)


def asked(api: Api, dialect: Dialect | None = None, **changes: Any) -> dict[str, Any]:
    plan = Plan(preset="t", endpoint="http://x", api=api, output_tokens=5, **changes)
    prompt = b'"hi"' if api == "chat" else b"[1,2]"
    found: dict[str, Any] = json.loads(body(plan, "m", dialect or Dialect(), prompt))
    return found


def test_bodies() -> None:
    assert asked("completions") == {
        "model": "m",
        "prompt": [1, 2],
        "max_tokens": 5,
        "temperature": 0.0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert asked("chat")["messages"] == [{"role": "user", "content": "hi"}]
    assert "stream_options" not in asked("chat", Dialect(usage=False))
    assert asked("chat", Dialect(min_tokens=True))["min_tokens"] == 5
    assert asked("generate") == {
        "input_ids": [1, 2],
        "stream": True,
        "sampling_params": {"max_new_tokens": 5, "temperature": 0.0, "ignore_eos": True},
    }
    assert "text" in asked("generate", Dialect(token_ids=False))
    llamacpp = asked("completion")
    assert (llamacpp["n_predict"], llamacpp["cache_prompt"], llamacpp["return_tokens"]) == (5, False, True)
    assert asked("completion", shared_prefix_tokens=3)["cache_prompt"] is True


def test_head_has_the_key_only_when_there_is_one() -> None:
    where = address("https://box/llm")
    assert b"Authorization: Bearer abc\r\n" in head(where, "POST", "/generate", 3, "abc")
    plain = head(where, "GET", "/v1/models", 0, None)
    assert plain.startswith(b"GET /llm/v1/models HTTP/1.1\r\nHost: box\r\n")
    assert b"Authorization" not in plain and b"Content-Length" not in plain
