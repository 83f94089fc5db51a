"""Before the load: does the endpoint answer, which model, which extras does it take, how long is a prompt of words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from decodetop.bench.http import Connection, Exchange, Inbox, reason
from decodetop.bench.load import Target, masked
from decodetop.bench.prompts import Prompts
from decodetop.bench.reading import ErrorKind, Plan
from decodetop.bench.request import PATHS, Dialect, body, first_dialect, head, simpler
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.reach import certificate_hint, is_tls
from decodetop.errors import RequestError

TRIAL_TOKENS = 8
TRIALS_OF_LENGTH = 3
"""Two give slope and overhead of a tokenizer, the third checks."""


class Refused(RequestError):
    """The endpoint can't be measured at all; `kind` is the fault of the request that showed it."""

    def __init__(self, kind: ErrorKind, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.kind = kind


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed. `trouble` = what the last trial request said, if it failed in a way the load may show again."""

    dialect: Dialect
    model: str | None
    prompt_tokens: int | None = None
    trouble: str | None = None


async def negotiate(
    plan: Plan, aim: Target, inbox: Inbox, indices: Iterator[int], dialect: Dialect | None = None
) -> Terms:
    """`indices`: those of the trials' prompts.

    Raises Refused when the endpoint is down, wants a key, or is no inference server of this API."""
    talk = _Talk(plan, aim, inbox, indices)
    try:
        await talk.open()
        if plan.api in ("completions", "chat") and plan.model is None:
            talk.model = await talk.first_model()
        agreed, exchange = await talk.agree(dialect or first_dialect(plan))
        if not agreed.token_ids and exchange.log.fault is None:
            agreed, exchange = await talk.size(agreed, exchange)
    finally:
        talk.close()
    fault = exchange.log.fault
    counts = exchange.log.counts
    trouble = f"{fault[0]}: {masked(fault[1], aim.key)}" if fault is not None else None
    return Terms(dialect=agreed, model=talk.model, prompt_tokens=counts.prompt, trouble=trouble)


class _Talk:
    def __init__(self, plan: Plan, aim: Target, inbox: Inbox, indices: Iterator[int]) -> None:
        self.plan = plan
        self.model = plan.model
        self._aim = aim
        self._connection = Connection(aim.where, inbox, aim.tls)
        self._indices = indices

    async def open(self) -> None:
        try:
            await asyncio.wait_for(self._connection.open(), self.plan.timeout_s)
        except (OSError, TimeoutError) as error:
            message = f"can't connect to {self.plan.endpoint}: {reason(error)}"
            hint = "is the server up, and is this its address and port?"
            if is_tls(error):
                hint = certificate_hint(error) or "is the scheme right: http or https?"
            raise Refused("cut", message, hint) from error

    def close(self) -> None:
        self._connection.close()

    async def first_model(self) -> str | None:
        """The first served model's name; None if the server doesn't say (some need none)."""
        payload = head(self._aim.where, "GET", "/v1/models", 0, self._aim.key)
        exchange = await self._connection.request(self.plan.api, payload, self.plan.timeout_s)
        if exchange.status in (401, 403):
            raise self._refusal(exchange, "/v1/models")
        try:
            listed = decode(exchange.body, _Models)
        except NotDecoded:
            return None
        return listed.data[0].id if listed.data else None

    async def agree(self, dialect: Dialect) -> tuple[Dialect, Exchange]:
        """Drop extras until the server takes the request; if it takes none, its word on the first one stands."""
        first: tuple[Dialect, Exchange] | None = None
        trying: Dialect | None = dialect
        while trying is not None:
            exchange = await self._try(trying, trying.words or self.plan.input_tokens, TRIAL_TOKENS)
            first = first or (trying, exchange)
            if exchange.status not in (400, 422):
                return trying, exchange
            trying = simpler(self.plan.api, trying)
        assert first is not None
        return first

    async def size(self, dialect: Dialect, exchange: Exchange) -> tuple[Dialect, Exchange]:
        """Find how many words make a prompt of `input_tokens`, by what the server counted."""
        target = self.plan.input_tokens
        words = dialect.words or target
        points: list[tuple[int, int]] = []
        for _ in range(TRIALS_OF_LENGTH):
            counted = exchange.log.counts.prompt
            if counted is None or counted == target:
                break
            points.append((words, counted))
            better = words_for(target, points)
            if better == words:
                break
            words = better
            exchange = await self._try(dialect, words, 1)
            if exchange.log.fault is not None:
                break
        return msgspec.structs.replace(dialect, words=words), exchange

    async def _try(self, dialect: Dialect, words: int, output_tokens: int) -> Exchange:
        index = next(self._indices)
        prompts = Prompts(self.plan.seed, words)
        prompt = prompts.ids(index) if dialect.token_ids else prompts.words(index)
        text = body(self.plan, self.model, dialect, prompt, min(output_tokens, self.plan.output_tokens))
        path = PATHS[self.plan.api]
        payload = head(self._aim.where, "POST", path, len(text), self._aim.key) + text
        exchange = await self._connection.request(self.plan.api, payload, self.plan.timeout_s)
        if _hopeless(exchange):
            raise self._refusal(exchange, path)
        return exchange

    def _refusal(self, exchange: Exchange, path: str) -> Refused:
        kind, words = exchange.log.fault or ("protocol", "no word why")
        said = " answered" if kind == "http" else ":"  # the others are sentences of their own
        message = f"{self.plan.endpoint.removesuffix('/v1')}{path}{said} {masked(words, self._aim.key)}"
        if exchange.status in (401, 403):
            hint = "the server wants a key: set DECODETOP_API_KEY, or api_key_file in the settings"
        elif exchange.status in (404, 405, 501):
            hint = "is the model's name right (--model), and does this server have this API (--api)?"
        elif exchange.status is not None and 300 <= exchange.status < 400:
            hint = "give the address it points to"
        elif exchange.encoding:
            hint = "a proxy on the way compresses it: give the server's own address, or have it leave streams alone"
        else:
            hint = "this is no inference server, or not its port: give its address by --endpoint"
        return Refused(kind, message, hint)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


def words_for(target: int, points: list[tuple[int, int]]) -> int:
    """Words that should give `target` tokens, from what was counted: (words, tokens) of one or more trials."""
    words, tokens = points[-1]
    slope = 1.0
    if len(points) > 1 and points[-2][0] != words:
        slope = (tokens - points[-2][1]) / (words - points[-2][0])
    elif tokens > 2 * words:
        slope = tokens / words
    if slope <= 0:
        return words
    return max(1, round(words + (target - tokens) / slope))


def _hopeless(exchange: Exchange) -> bool:
    """No request of this kind will ever do better, so that a load would only repeat it."""
    status = exchange.status
    if status is None:
        kind = exchange.log.fault[0] if exchange.log.fault is not None else None
        return kind == "protocol" or exchange.write_ns is None
    if 200 <= status < 300:
        return not exchange.streaming
    return status in (401, 403, 404, 405, 501) or 300 <= status < 400
