"""Which engine answers at an address. By what it says over HTTP, never by its port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from decodetop.server.client import Answer, NoAnswer
from decodetop.server.engines.adapter import Adapter, first_model
from decodetop.server.engines.listed import Listed
from decodetop.server.engines.llamacpp import LlamaCpp
from decodetop.server.engines.lmdeploy import LMDeploy
from decodetop.server.engines.ollama import Ollama
from decodetop.server.engines.sglang import SGLang
from decodetop.server.engines.tgi import TGI
from decodetop.server.engines.trtllm import TensorRT
from decodetop.server.engines.vllm import VLLM
from decodetop.server.reading import Engine

Get = Callable[[Engine, str], Awaitable[Answer]]

OWNERS: dict[str, Engine] = {
    "sglang": "sglang",
    "vllm": "vllm",
    "llamacpp": "llamacpp",
    "lmdeploy": "lmdeploy",
    "tensorrt_llm": "trtllm",
}
"""`owned_by` of `/v1/models`. Ollama says `library` there and is asked further."""


KEY_MISSING = "set DECODETOP_API_KEY or api_key_file"
KEY_REFUSED = "it refuses the key given"


class NeedsKey(NoAnswer):
    """It is up and wants a key. `engine` is what could be told without one."""

    def __init__(self, engine: Engine, message: str, hint: str) -> None:
        super().__init__("needs_key", message, hint)
        self.engine: Engine = engine


def adapter_of(engine: Engine) -> Adapter:
    match engine:
        case "sglang":
            return SGLang()
        case "vllm":
            return VLLM()
        case "llamacpp":
            return LlamaCpp()
        case "ollama":
            return Ollama()
        case "tgi":
            return TGI()
        case "lmdeploy":
            return LMDeploy()
        case "trtllm":
            return TensorRT()
        case "unknown":
            return Listed()


async def identify(get: Get, has_key: bool) -> Engine:
    """Raises NoAnswer: down, hung, starting, needs_key (NeedsKey) or not_a_server."""
    models = await get("unknown", "/v1/models")
    if models.denied:
        engine = await _behind_a_key(get, models)
        raise NeedsKey(engine, KEY_REFUSED if has_key else KEY_MISSING, "set DECODETOP_API_KEY or api_key_file")
    if models.code == 503:
        raise NoAnswer("starting", "it answers 503: it is loading")
    if models.code in (502, 504):
        raise NoAnswer("down", f"a gateway answers {models.code}: its server is away")
    entry = first_model(models.json()) if models.ok else {}
    owner = OWNERS.get(str(entry.get("owned_by")))
    if owner is not None:
        return owner
    for path, fields, engine in _SIGNS:
        answer = await get("unknown", path)
        said = answer.object()
        if not answer.ok or not all(field in said for field in fields):
            continue
        if engine != "ollama" or _is_ollama(said, models):
            return engine
    if entry.get("id"):
        return "unknown"
    what = "a web page" if models.content_type.startswith("text/html") else f"{models.code} to /v1/models"
    raise NoAnswer("not_a_server", f"it answers {what}", "check the address")


_SIGNS: tuple[tuple[str, tuple[str, ...], Engine], ...] = (
    ("/model_info", ("model_path", "is_generation"), "sglang"),
    ("/props", ("build_info",), "llamacpp"),
    ("/info", ("model_id", "router"), "tgi"),
    ("/api/version", ("version",), "ollama"),
)
"""Path, the fields that must be in its object, engine. SGLang answers Ollama's paths too, so it is asked first."""


def _is_ollama(version: Mapping[str, Any], models: Answer) -> bool:
    """Its version object has one field, a version in digits, and its `/v1/models` is a list (before 0.1.24: a 404).

    Many a program that answers everything with some JSON object has a `version` in it.
    """
    text = version.get("version")
    listed = models.code == 404 or models.object().get("object") == "list"
    return len(version) == 1 and isinstance(text, str) and text[:1].isdecimal() and listed


async def _behind_a_key(get: Get, denied: Answer) -> Engine:
    """SGLang and llama.cpp are known by the words of their refusal; vLLM guards `/v1` only."""
    error = denied.object().get("error")
    if error == "Unauthorized":
        version = await get("unknown", "/version")
        return "vllm" if version.ok and "version" in version.object() else "sglang"
    if isinstance(error, dict) and error.get("type") == "authentication_error":
        return "llamacpp"
    version = await get("unknown", "/version")
    return "vllm" if version.ok and "version" in version.object() else "unknown"
