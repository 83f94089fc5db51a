"""Which modules a checkpoint's patterns mean. Lists of 500 patterns are common, so they are sorted once. Pure.

`re:` is matched from the start as compressed-tensors does; `*` as modelopt does, over dots; plain words as transformers
does: they are path components (`gate` is no `gate_proj`). A pattern means the module and everything inside of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "model.", "")
"""What checkpoints put before the names we use; the longer before the shorter."""

_WILD = re.compile(r"[*?\[]")
_LAYER = re.compile(r"^layers\.(\d+)\.")


WIDE_MAX, CHOICES_MAX, LENGTH_MAX = 3, 4, 1000
_ATOM = re.compile(r"\\(?s:.)|\[\^?\]?(?:[^\]\\]|\\(?s:.))*\]|\(\?(?:P?<?[!=:>]|P<\w+>)?|(?s:.)")
_REPEAT = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[?+]?")
_NARROW = re.compile(r"\\[^DWSdws]|\\d|\w|-|:")


def expression(text: str) -> re.Pattern[str] | None:
    """`text` compiled; None for what is no regular expression, and for one that could search without end.

    A checkpoint is from outside, and `re` tries every way to split a name: `(.*)*x` takes longer than anyone waits,
    with the whole process held. So a group that holds a repeat or a choice is not repeated, and few repeats may take
    anything.
    """
    if len(text) > LENGTH_MAX or not _ends_soon(text):
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return None


def _ends_soon(text: str) -> bool:
    wide = choices = at = 0
    many = [False]
    """Of each open group: it can match one name in several ways."""
    while at < len(text):
        atom = _ATOM.match(text, at)
        assert atom is not None
        at, word, again = atom.end(), atom[0], False
        if word.startswith("("):
            many.append(False)
            continue
        if word == ")":
            again = len(many) > 1 and many.pop()
            many[-1] = many[-1] or again
        elif word == "|":
            choices += not many[-1]
            many[-1] = True
            continue
        repeat = _REPEAT.match(text, at)
        if repeat is None:
            continue
        at = repeat.end()
        if again and not repeat[0].startswith("?"):
            return False
        wide += not _NARROW.fullmatch(word)  # our names hold no long run of one letter or of digits
        many[-1] = True
    return wide <= WIDE_MAX and choices <= CHOICES_MAX


class Patterns:
    """`match(name)` for names without a prefix, such as `layers.3.mlp.gate_proj`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._words: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        globs: dict[str | None, list[str]] = {}
        for pattern in patterns:
            if pattern.startswith("re:"):
                if (found := expression(pattern[3:])) is not None:
                    self._expressions.append(found)
                continue
            bare = _without_prefix(pattern)
            if _WILD.search(bare):
                layer = _LAYER.match(bare)
                globs.setdefault(layer[1] if layer else None, []).append(translate(bare))
            else:
                self._words.add(bare)
        self._globs = {layer: re.compile("|".join(found)) for layer, found in globs.items()}

    def match(self, name: str) -> bool:
        parts = name.split(".")
        # a path from the layers on means that layer, not one of the draft model's
        starts = [start for start in range(len(parts)) if start == 0 or parts[start] != "layers"]
        inner = (".".join(parts[start:end]) for start in starts for end in range(start + 1, len(parts) + 1))
        if any(word in self._words for word in inner):
            return True
        if any(one.match(prefix + name) for one in self._expressions for prefix in PREFIXES):
            return True
        layer = _LAYER.match(name)
        places = {None, layer[1] if layer else None}
        globs = [self._globs[place] for place in places if place in self._globs]
        # `x.*` means what is inside of x, `*.x` wants something before it
        forms = [f"{name}.", *(".".join(parts[:end]) for end in range(len(parts), 0, -1))]
        return any(glob.match(before + form) for glob in globs for form in forms for before in ("", "model."))


def _without_prefix(pattern: str) -> str:
    return next(pattern.removeprefix(prefix) for prefix in PREFIXES if pattern.startswith(prefix))


@lru_cache(maxsize=64)
def compiled(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(patterns)
