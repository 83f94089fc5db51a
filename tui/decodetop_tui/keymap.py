"""Actions and the keys they answer to; a user's own keys are checked as a whole before they count. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from decodetop_tui.face import Face

QUIT = "quit"
GROUPS = ("move", "look", "todo", "bench", "steps", "server", "record", "program")

NAMED_KEYS = (
    *("tab", "shift+tab", "enter", "escape", "space", "backspace", "delete", "insert"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *(f"f{number}" for number in range(1, 13)),
    *(f"ctrl+{letter}" for letter in "defghklnoprtuvwxy"),
)
"""Keys that are no printable character. Left out on purpose: what terminals, tmux and screen keep for themselves
(ctrl+s, ctrl+q, ctrl+z, ctrl+a, ctrl+b), what is another key in disguise (ctrl+i, ctrl+j, ctrl+m), and ctrl+c.
"""

SHOWN = {
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "S-Tab",
    "enter": "Enter",
    "escape": "Esc",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}
"""How a key is written where it is not written as it is."""


class Action(NamedTuple):
    """One thing the operator can do. `when` says why it can't be done here and now, or None."""

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    group: str
    run: Callable[[Face], None]
    when: Callable[[Face], str | None] = lambda face: None


class Keymap(NamedTuple):
    """`by_key` finds the action of a key, `keys` the keys of an action's id; `problems` are the entries refused."""

    by_key: Mapping[str, Action]
    keys: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...]

    def shown(self, id: str) -> str:
        """The action's keys as people read them; empty when it has none."""
        return " ".join(_shown(key) for key in self.keys[id])

    def first(self, id: str) -> str:
        return self.shown(id).split(" ")[0]


def build(actions: Sequence[Action], own: Mapping[str, str]) -> Keymap:
    """The table's keys with the user's over them. `own[action id]` holds keys parted by spaces."""
    defaults = {action.id: action.keys for action in actions}
    problems: list[str] = []
    wanted: dict[str, tuple[str, ...]] = {}
    for id, text in own.items():
        keys = tuple(text.split())
        refusal = _refusal(id, keys, defaults)
        if refusal is None:
            wanted[id] = keys
        else:
            problems.append(f"key {id} = {text!r}: {refusal}")
    while clash := _clash(defaults | wanted, wanted):
        id, key, other = clash
        problems.append(f"key {id} = {' '.join(wanted.pop(id))!r}: {key} is already {other}'s")
    keys_of = defaults | wanted
    by_id = {action.id: action for action in actions}
    by_key = {key: by_id[id] for id, keys in keys_of.items() for key in keys}
    return Keymap(by_key, keys_of, tuple(problems))


def is_key(text: str) -> bool:
    """One printable character, or a key's name."""
    return text in NAMED_KEYS or (len(text) == 1 and text.isprintable() and not text.isspace())


def name_of(key: str, character: str | None) -> str:
    """A key event by our names: printable characters are themselves, the rest as Textual calls it."""
    if character is not None and character != " " and character.isprintable() and not key.startswith(("alt+", "ctrl+")):
        return character
    return key


def _shown(key: str) -> str:
    if key.startswith("ctrl+"):
        return f"^{key[5:].upper()}"
    return SHOWN.get(key, key.upper() if key in NAMED_KEYS else key)


def _refusal(id: str, keys: Sequence[str], known: Mapping[str, tuple[str, ...]]) -> str | None:
    if id not in known:
        return "there is no such action (docs/keys.md lists them)"
    if not keys and id == QUIT:
        return "then nothing would quit"
    wrong = [key for key in keys if not is_key(key)]
    return f"{wrong[0]!r} is not a key that can be used" if wrong else None


def _clash(
    keys_of: Mapping[str, tuple[str, ...]], wanted: Mapping[str, tuple[str, ...]]
) -> tuple[str, str, str] | None:
    """The last of the user's entries that takes a key another action has: (its id, the key, the other's id)."""
    for id in reversed(list(wanted)):
        for key in wanted[id]:
            for other, theirs in keys_of.items():
                if other != id and key in theirs:
                    return id, key, other
    return None
