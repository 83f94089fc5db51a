"""One request's stream as it comes: the stamps of its token chunks, its counts, and how it ended. Pure."""

from __future__ import annotations

import msgspec

from decodetop.bench.events import Counts, Heard, hear
from decodetop.bench.plan import TOKENS_MAX
from decodetop.bench.reading import Api, ErrorKind
from decodetop.bench.sse import Event
from decodetop.core.outside import plain
from decodetop.errors import RequestError

CHUNKS_MAX = TOKENS_MAX
"""Of one answer: each one's stamp is kept."""


class StreamLog:
    """One request's stream as it comes: stamps of the chunks that carried tokens, and the tokens of each."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.stamps_ns: list[int] = []
        self.tokens: list[int] = []
        """Per chunk, 0 where the stream did not say."""
        self.id: str | None = None
        """What the server calls the request; in its log too."""
        self.finish: str | None = None
        self.done = False
        self.fault: tuple[ErrorKind, str] | None = None
        self.doubt = ""
        """The first count the server gave that can't be; it is unknown then."""
        self._counts = Counts()
        self._seen = 0
        self._total = 0
        self._fell = False
        self._uncounted = False

    def hear(self, event: Event) -> None:
        """Take one event; what is wrong with it becomes `fault` (the first stays). After the stream's own word that it
        is done nothing is of the answer any more."""
        if self.done:
            return
        try:
            heard = hear(self.api, event)
        except RequestError as error:
            self.fail("protocol", error.message)
            return
        if heard is None:
            return
        if heard.error is not None:
            self.fail("stream_error", heard.error)
            return
        self.done = self.done or heard.done
        self.doubt = self.doubt or heard.doubt
        if self.id is None and heard.id is not None:
            self.id = str(heard.id)
        if heard.finish is not None:
            self.finish = heard.finish
        if heard.counts is not None:
            self._merge(heard.counts)
        if heard.total is not None:
            self._compare(heard.total)
        self._count(heard, event.t_ns)

    def fail(self, kind: ErrorKind, message: str) -> None:
        """`message` may quote the server."""
        if self.fault is None:
            self.fault = (kind, plain(message))

    @property
    def counts(self) -> Counts:
        """As far as they can be: a count of output tokens that went down is none."""
        return msgspec.structs.replace(self._counts, output=None) if self._fell else self._counts

    @property
    def known_tokens(self) -> int:
        """Output tokens the stream has said so far."""
        return self._seen

    @property
    def counted(self) -> bool:
        """Every chunk said its tokens, and they add up to what the server counted in the end."""
        total = self._counts.output
        return bool(self.tokens) and all(self.tokens) and (total is None or sum(self.tokens) == total)

    def _compare(self, total: int) -> None:
        if total < self._total:
            self._fell = True
            self.doubt = (
                self.doubt or f"the server's count of output tokens went down, from {self._total:,} to {total:,}"
            )
        self._total = total

    def _count(self, heard: Heard, t_ns: int) -> None:
        """Note the chunk if the server's running count rose with it, or, without such a count, if it carries output.

        A count that only comes at the end (or stays 0 until then) is no running count.
        """
        if heard.aside:
            return
        grown = heard.new or 0
        if heard.new is None and heard.total is not None and not self._uncounted:
            grown = max(0, heard.total - self._seen)
        running = self._seen > 0 and heard.total is not None and not self._uncounted
        if not grown and (running or not heard.token):
            return
        if len(self.stamps_ns) >= CHUNKS_MAX:
            self.fail("protocol", f"over {CHUNKS_MAX:,} chunks came, and no end")
            return
        self._uncounted = self._uncounted or not grown
        self._seen += grown
        self.stamps_ns.append(t_ns)
        self.tokens.append(grown)

    def _merge(self, new: Counts) -> None:
        old = self._counts
        self._counts = Counts(
            output=old.output if new.output is None else new.output,
            prompt=old.prompt if new.prompt is None else new.prompt,
            cached=old.cached if new.cached is None else new.cached,
            steps=old.steps if new.steps is None else new.steps,
        )
