"""What is drawn and which words are shown: the face's eye on the feed."""

from __future__ import annotations

from decodetop.core.sample import Notice, Sample
from decodetop.core.source import ReplayReading
from decodetop.core.state import fold
from decodetop_tui.feed import Lookout
from support import states
from support.face import FakeFeed


def test_only_a_new_state_is_drawn() -> None:
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    assert not lookout.look()
    feed.latest = states.step(feed.latest, 3)
    assert lookout.look() and lookout.state is feed.latest
    assert not lookout.look()


def test_what_comes_within_a_frame_is_drawn_together() -> None:
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    assert lookout.settled() and not lookout.look()
    feed.latest = states.step(feed.latest, 3)
    assert not lookout.settled(), "more of this moment may be on its way"
    feed.latest = states.step(feed.latest, 4)
    assert lookout.settled() and lookout.look() and lookout.state is feed.latest
    assert lookout.settled() and not lookout.look()


def test_a_seek_that_goes_back_is_drawn_too() -> None:
    feed = FakeFeed(states.box(9))
    lookout = Lookout(feed)
    feed.latest = states.box(2)
    assert lookout.look() and lookout.state.now_ns == 2 * 10**9


def test_frozen_keeps_its_state_and_sees_the_newest() -> None:
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    lookout.frozen, before = True, lookout.state
    feed.latest = states.step(feed.latest, 3)
    assert not lookout.look() and lookout.state is before and lookout.live is feed.latest


def test_every_notice_is_heard_once_and_the_newest_is_shown() -> None:
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    feed.latest = states.notice(states.notice(feed.latest, "first", ring=True), "second")
    assert lookout.hear()  # the first one rings though it is not shown
    assert lookout.toast is not None and lookout.toast.notice.message == "second"
    assert not lookout.hear()


def test_two_notices_of_one_moment_are_two() -> None:
    """A pipe stamps its words with the time of its last sample."""
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    for word in ("one", "two"):
        feed.latest = fold(feed.latest, Sample(source="notice", t_ns=7, seq=7, reading=Notice(message=word)))
        lookout.hear()
        assert lookout.toast is not None and lookout.toast.notice.message == word


def test_what_was_said_before_the_screen_opened_is_no_news() -> None:
    feed = FakeFeed(states.notice(states.box(2), "old", ring=True))
    lookout = Lookout(feed)
    assert not lookout.hear() and lookout.toast is None


def test_a_replay_shows_its_words_and_rings_no_bell_and_a_wound_tape_says_nothing() -> None:
    replay = ReplayReading(position_s=1, duration_s=9, speed=1, ended=False)
    feed = FakeFeed(states.put(states.box(2), {"replay": replay}, 2))
    lookout = Lookout(feed)
    feed.latest = states.notice(feed.latest, "then", ring=True)
    assert not lookout.hear() and lookout.toast is not None
    lookout.toast = None
    feed.latest = states.notice(states.put(states.box(1), {"replay": replay}, 1), "earlier")
    assert not lookout.hear() and lookout.toast is None


def test_a_toast_fades_in_session_time_an_error_later() -> None:
    feed = FakeFeed(states.box(2))
    lookout = Lookout(feed)
    lookout.say(Notice(message="done"))
    assert not lookout.fade()
    feed.latest = states.step(feed.latest, 9)
    assert lookout.fade() and lookout.toast is None
    lookout.say(Notice(level="error", message="no"))
    feed.latest = states.step(feed.latest, 18)
    assert not lookout.fade()
