"""The face's eye on the feed: which state to draw, whether it changed, which words came since."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.sample import Command, Notice
from decodetop.core.source import ReplayReading
from decodetop.core.state import Past, State

FRAMES_PER_SECOND = 4
"""More is not seen, and costs bytes over SSH."""

TOAST_S = {"info": 6.0, "warning": 10.0, "error": 20.0}


class FeedLike(Protocol):
    """What the face needs of `core.feed.Feed`."""

    @property
    def latest(self) -> State: ...

    def submit(self, command: Command) -> None: ...


class Toast(NamedTuple):
    """A notice and when it goes, in session time."""

    notice: Notice
    until_ns: int


class Lookout:
    """`state` is what is drawn. Frozen, it stays while the feed goes on."""

    def __init__(self, feed: FeedLike, clock: Clock | None = None) -> None:
        """`clock` tells how old the last figures are when no sample comes any more: then nothing else does."""
        self._feed, self._clock = feed, clock
        self._ended_ns: int | None = None
        self._drawn: tuple[State, int] = (feed.latest, 0)
        self.state = feed.latest
        self.frozen = False
        self._waiting = False
        self.toast: Toast | None = None
        self.last_word: Notice | None = None
        past = feed.latest.lane("notice").history
        self._heard: Past | None = past[-1] if past else None

    @property
    def live(self) -> State:
        """The newest state, drawn or not."""
        return self._feed.latest

    @property
    def replaying(self) -> ReplayReading | None:
        return self.live.last("replay", ReplayReading)

    def settled(self) -> bool:
        """False the first time that something new is seen: what sources say of one moment comes within a frame, and is
        drawn together: else many a second would be drawn twice."""
        self._waiting = not self._waiting and self._feed.latest is not self._drawn[0]
        return not self._waiting

    def look(self) -> bool:
        """Take the newest state; False when there is nothing new to draw."""
        newest, passed_ns = self._feed.latest, self._since_the_end_ns()
        if self.frozen or (newest is self._drawn[0] and passed_ns == self._drawn[1]):
            return False
        self._drawn = (newest, passed_ns)
        self.state = replace(newest, now_ns=newest.now_ns + passed_ns) if passed_ns else newest
        return True

    def show(self, state: State) -> None:
        """Draw this one (tests, and a feed that is not asked)."""
        self.state = state
        self._drawn = (state, 0)

    def hear(self) -> bool:
        """Take the notices since the last call; True if one of them asks for the bell. The newest is shown."""
        history = self.live.lane("notice").history
        at = next((at for at, one in enumerate(history) if one is self._heard), None)
        # a tape that was wound holds other samples: what it says of its past is no news
        past = history[0 if at is None else at + 1 :] if at is not None or self._heard is None else ()
        self._heard = history[-1] if history else None
        notices = [one.reading for one in past if isinstance(one.reading, Notice)]
        if notices:
            self.say(notices[-1])
        # a replay tells what rang then; nothing rings now
        return self.replaying is None and any(notice.ring for notice in notices)

    def say(self, notice: Notice) -> None:
        """Show a word for a while."""
        self.last_word = notice
        self.toast = Toast(notice, self._now_ns + int(TOAST_S[notice.level] * SECOND_NS))

    def fade(self) -> bool:
        """Take the toast away when its time is over; True if it went."""
        if self.toast is None or self._now_ns < self.toast.until_ns:
            return False
        self.toast = None
        return True

    @property
    def _now_ns(self) -> int:
        return self.live.now_ns + self._since_the_end_ns()

    def _since_the_end_ns(self) -> int:
        """Whole seconds, in ns, since the pipe was seen to have ended."""
        if self._clock is None or self.live.lane("pipe").failure is None:
            return 0
        if self._ended_ns is None:
            self._ended_ns = self._clock.now_ns()
        return (self._clock.now_ns() - self._ended_ns) // SECOND_NS * SECOND_NS
