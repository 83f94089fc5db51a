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


class Patterns:
    """`match(name)` for names without a prefix, such as `layers.3.mlp.gate_proj`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._words: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        globs: dict[str | None, list[str]] = {}
        for pattern in patterns:
            if pattern.startswith("re:"):
                self._add_expression(pattern[3:])
                continue
            bare = _without_prefix(pattern)
            if _WILD.search(bare):
                layer = _LAYER.match(bare)
                globs.setdefault(layer[1] if layer else None, []).append(translate(bare))
            else:
                self._words.add(bare)
        self._globs = {layer: re.compile("|".join(found)) for layer, found in globs.items()}

    def _add_expression(self, text: str) -> None:
        """What is no regular expression matches nothing: the file is from outside."""
        try:
            self._expressions.append(re.compile(text))
        except re.error:
            return

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


def is_bounded(pattern: str) -> bool:
    """Whether it is tried in a bounded time: no repeated group holds a repetition, as `(.*)*` does.

    Such an expression takes minutes for one name, and Python's matcher lets nothing else run meanwhile.
    """
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "_", pattern)
    repeats: list[bool] = [False]
    for at, char in enumerate(bare):
        if char == "(":
            repeats.append(False)
        elif char == ")" and len(repeats) > 1:
            inner = repeats.pop()
            if inner and bare[at + 1 : at + 2] in ("*", "+", "{"):
                return False
            repeats[-1] = repeats[-1] or inner
        elif char in "*+{":
            repeats[-1] = True
    return True


def _without_prefix(pattern: str) -> str:
    return next(pattern.removeprefix(prefix) for prefix in PREFIXES if pattern.startswith(prefix))


@lru_cache(maxsize=64)
def compiled(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(patterns)
