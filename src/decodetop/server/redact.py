"""Keys out of commands, flags and messages, before they are kept anywhere. Pure.

Masking too much costs a word on the screen, masking too little leaks a key: where in doubt, it masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MASK = "***"

_NAME = (
    r"(?:(?>[a-z0-9_.\-]*?(?:api[_-]?key|apikey|secret|passw(?:or)?d|passphrase|credential|authorization|"
    r"access[_-]?key|private[_-]?key|bearer|cookie))[a-z0-9_.\-]*+|(?:[a-z0-9_.\-]*[_-])?(?:token|auth|pat)|"
    r"admin[_-]?key)"
)
"""A name whose value is secret: `api_key`, `--ssl-keyfile-password`, `HF_TOKEN`; not `--tokenizer`, `max_tokens`.

What is masked comes from outside and may be made to be slow: no pattern here takes more than a few passes over a text,
so each begins once in a run of such characters, and nothing that was matched is tried again in another way."""

_SECRET_NAME = re.compile(rf"-*{_NAME}", re.IGNORECASE)
_LONG_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_.\-]*(?:=.*)?", re.DOTALL)

_QUOTED = re.compile(
    rf"""(?<![A-Za-z0-9_.\-#])(?P<name>{_NAME}[\\"']*\s*[:=]\s*)(?P<quote>\\*["'])(?P<value>.*?)(?P=quote)""",
    re.IGNORECASE | re.DOTALL,
)
_OPEN_QUOTE = re.compile(
    rf"""(?<![A-Za-z0-9_.\-#])(?P<name>{_NAME}[\\"']*\s*[:=]\s*)(?P<quote>\\*["'])(?!\*\*\*)[^"']*$""",
    re.IGNORECASE | re.DOTALL,
)
_LISTED = re.compile(
    rf"""(?<![A-Za-z0-9_.\-#])(?P<name>{_NAME}[\\"']*\s*[:=]\s*)(?P<open>[\[(]).*?(?P<close>[\])]|$)""",
    re.IGNORECASE | re.DOTALL,
)
_BARE = re.compile(
    rf"""(?<![A-Za-z0-9_.\-#])(?P<name>{_NAME}[\\"']*\s*[:=]\s*)(?!\\*["'\[(])(?:(?:bearer|basic)\s+)?[^\s,;&"'\])}}]+""",
    re.IGNORECASE,
)
_FLAG_VALUE = re.compile(
    rf"""(?P<name>(?<![A-Za-z0-9_.\-])--{_NAME}\s+)(?P<quote>["']?)(?!--[A-Za-z])(?:(?<=")[^"]*|(?<=')[^']*|[^\s"']+)""",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)(?!\*\*\*)[^\s,;\"']{4,}", re.IGNORECASE)
_USERINFO = re.compile(r"://[^/\s@]+@")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_\-]{6,}|nvapi-[A-Za-z0-9_\-]{8,}|"
    r"gh[opusr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_\-]{12,}|xox[a-z]-[A-Za-z0-9\-]{8,}|"
    r"AKIA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_\-]{8,4096}+\.[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)?)"
)
"""Keys known by their form: Hugging Face, OpenAI-like, NVIDIA, GitHub, GitLab, Slack, AWS, JSON web tokens."""


def is_secret_name(name: str) -> bool:
    """Whether a flag, setting or variable of this name holds a secret."""
    return _SECRET_NAME.fullmatch(name.strip()) is not None


LEARNT_MIN = 8
"""Characters of a key worth masking wherever it stands; a shorter one (`EMPTY`, `x`) is a word of other sentences."""

_learnt: set[str] = set()


def learn(argv: Sequence[str]) -> None:
    """Remember the keys a server of this box was started with: it may repeat one in an answer, where nothing but its
    value tells that it is one."""
    for word, shown in zip(argv, redact(argv), strict=True):
        if shown != word and MASK in shown:
            head, _, tail = shown.partition(MASK)
            secret = word[len(head) : len(word) - len(tail)]
            if len(secret) >= LEARNT_MIN and not tail.count(MASK):
                _learnt.add(secret)


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """`text` without keys. `known` are secrets at hand, masked wherever they stand, like those learnt."""
    for secret in sorted({*known, *_learnt}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    text = _USERINFO.sub(f"://{MASK}@", text)
    text = _QUOTED.sub(rf"\g<name>\g<quote>{MASK}\g<quote>", text)
    text = _OPEN_QUOTE.sub(rf"\g<name>\g<quote>{MASK}", text)
    text = _LISTED.sub(rf"\g<name>\g<open>{MASK}\g<close>", text)
    text = _BARE.sub(rf"\g<name>{MASK}", text)
    text = _FLAG_VALUE.sub(rf"\g<name>\g<quote>{MASK}", text)
    text = _SCHEME.sub(rf"\g<name>{MASK}", text)
    return _SHAPES.sub(MASK, text)


def redact(argv: Sequence[str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """A command's arguments without keys: what follows a secret flag, and anything that looks like a key.

    A secret flag takes every word up to the next flag (vLLM's `--api-key` may be given several).
    """
    known = tuple(known)
    masked: list[str] = []
    secret = first = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if name.startswith("-") and is_secret_name(name) and (_LONG_FLAG.fullmatch(word) or not equals):
            masked.append(f"{name}={MASK}" if equals else name)
            secret, first = not equals, not equals
        elif secret and ((first and not _LONG_FLAG.fullmatch(word)) or not word.startswith("-")):
            masked.append(MASK)
            first = False
        elif equals and is_secret_name(name):
            masked.append(f"{name}={MASK}")
            secret = False
        else:
            secret = False
            masked.append(redact_text(word, known))
    return tuple(masked)
