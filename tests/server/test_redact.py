"""Planted keys never survive; what is no key does."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from decodetop.server.redact import MASK, is_secret_name, redact, redact_text

KEY = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+", min_size=12, max_size=40)
ANY_KEY = st.text(min_size=12, max_size=40)
SECRET_FLAG = st.sampled_from(
    ["--api-key", "--admin-api-key", "--ssl-keyfile-password", "--hf-token", "--token", "--API_KEY", "--auth-token"]
)
SECRET_NAME = st.sampled_from(
    [
        "api_key",
        "admin_api_key",
        "ssl_keyfile_password",
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "VLLM_API_KEY",
        "token",
        "secret",
    ]
)


def plain(key: str) -> bool:
    """A key that is no flag itself (argparse would not take it) and no piece of the sentence around it."""
    return not key.startswith("-") and key not in "python3 -m sglang.launch_server --port 30000 rejected: no"


@settings(deadline=None)
@given(SECRET_FLAG, ANY_KEY)
@example("--api-key", "with space and, comma")
def test_a_flag_s_value_is_masked(flag: str, key: str) -> None:
    for argv in (
        ["python3", "-m", "sglang.launch_server", flag, key, "--port", "30000"],
        ["python3", "-m", "sglang.launch_server", f"{flag}={key}", "--port", "30000"],
    ):
        if key.startswith("--"):
            continue
        masked = redact(argv)
        assert MASK in " ".join(masked)
        assert key not in masked and not any(key in word for word in masked if plain(key))
        assert masked[-2:] == ("--port", "30000")


@settings(deadline=None)
@given(st.lists(KEY.filter(plain), min_size=2, max_size=4))
def test_several_values_of_one_flag_are_masked(keys: list[str]) -> None:
    masked = redact(["vllm", "serve", "m", "--api-key", *keys, "--port", "8000"])
    assert masked == ("vllm", "serve", "m", "--api-key", *[MASK] * len(keys), "--port", "8000")


@settings(deadline=None)
@given(SECRET_NAME, KEY.filter(plain))
def test_text_of_many_forms_is_masked(name: str, key: str) -> None:
    for text in (
        f"{name}={key}",
        f"{name}: {key}",
        f"ServerArgs(port=1, {name}='{key}', host='x')",
        json.dumps({"a": {"b": [{name: key}]}}),
        json.dumps(json.dumps({name: key})),
        json.dumps({name: [key, "other" + key]}),
        f"GET /v1/models?{name}={key}&x=1 failed",
        f"Authorization: Bearer {key}",
        f"'Authorization': 'Bearer {key}'",
        f"rejected: bearer {key}",
        f"http://user:{key.replace('/', '')}@host:30000/v1",
        shlex.join(["vllm", "serve", "m", "--api-key", key, "--port", "1"]),
        f'sh -c "vllm serve m --api-key {key}"',
        f'{{"{name}": "{key}',
    ):
        if key not in text.replace(key, ""):  # else it is a word of the sentence: no secret
            assert key not in redact_text(text), text


@settings(deadline=None)
@given(ANY_KEY)
def test_a_known_secret_is_masked_anywhere(key: str) -> None:
    for text in (f"no such key {key} here", f"Invalid API Key<{key}>", f"{key}{key}"):
        assert key not in redact_text(text, [key])


@pytest.mark.parametrize(
    "key",
    [
        "hf_abcdefghijklmnop",
        "sk-proj-1234567890abcdef",
        "nvapi-abcdefghijkl",
        "ghp_0123456789abcdef0123",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
    ],
)
def test_keys_known_by_their_form(key: str) -> None:
    assert redact([f"--header=x {key}", key]) == (f"--header=x {MASK}", MASK)


@pytest.mark.parametrize(
    "argv",
    [
        ["python3", "-m", "sglang.launch_server", "--tokenizer-path", "/m", "--max-total-tokens", "1000"],
        ["vllm", "serve", "/m", "--max-num-batched-tokens", "8192", "--tokenizer-mode", "auto"],
        ["vllm", "serve", "m", "--profiler-config", '{"profiler":"torch","torch_profiler_dir":"/srv/prof"}'],
        ["sglang", "serve", "--speculative-token-map", "/maps/a.pt", "--trust-remote-code"],
        ["llama-server", "-m", "/m.gguf", "-c", "4096", "--host", "127.0.0.1"],
    ],
)
def test_what_is_no_key_stays(argv: list[str]) -> None:
    assert redact(argv) == tuple(argv)


def test_a_message_without_keys_stays() -> None:
    text = "http://127.0.0.1:30000/v1/models answered 500; token usage: 0.05, #token: 391, max_tokens=12"
    assert redact_text(text) == text


def test_secret_names() -> None:
    assert all(is_secret_name(name) for name in ("--api-key", "admin_api_key", "HF_TOKEN", "ssl_keyfile_password"))
    assert not any(is_secret_name(name) for name in ("--tokenizer", "max_tokens", "tp_size", "keyfile", "author"))
