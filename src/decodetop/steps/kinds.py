"""Which kind of work a kernel is, by its name and where that is not enough by its neighbours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.core.regular import read_text, why
from decodetop.errors import ConfigError
from decodetop.steps.reading import KINDS

UNKNOWN = len(KINDS)
"""Code of a name that no family matches; reported under `other` and listed apart."""

_FUNCTOR_FIRST = re.compile(r"elementwise_kernel\w*$|\breduce_kernel$|\bcutlass::(?:device_kernel|Kernel2?)$")
_FUNCTOR_ANYWHERE = re.compile(
    r"\bmulti_tensor_apply_kernel$|\bdeep_gemm::\w+$|\bck(?:_tile)?::\w+$|\bunary_(?:gated_)?op_kernel$"
)
_NUMBER = re.compile(r"\(?\w*\)?-?\d+\w*$|true$|false$")
_SUFFIX = re.compile(r"(?:\[clone [^\[\]]{0,80}\]|\.kd|_0d1[\dcde]*)$")
"""What ROCm adds to a name, and older Triton: of each argument whether it is divisible or constant."""
_NAME_MAX = 8_192
"""Characters of a kernel's name that are taken apart; the longest of CUTLASS have some 5,000."""
SEARCHED_MAX = 1_024
"""Characters of what is left of a name in which families are looked for: of reviewed names at most 700 are left, and
patterns with several free stretches take a power of the length."""
_ANONYMOUS = "(anonymous namespace)::"
_HINT = "entries are [[family]] with kind, match = [regex, ..] and [[context]] with kind, match, after, before"
_MANGLED = re.compile(r"L[a-z]n?\d+E|(\d{1,5})([A-Za-z_])")
"""A number as a template's argument, or an identifier with its length in front."""
_ENUMERATOR = re.compile(r"E(\d{1,3})E")


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that are of one kind: any of the regular expressions `match`, searched in the normalised name."""

    kind: str
    match: list[str]
    label: str = ""


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind for a name that alone says nothing: all conditions given must hold."""

    kind: str
    match: str
    after: list[str] = []
    before: list[str] = []
    calls_per_step: int = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    family: list[Family] = []
    context: list[Context] = []


class Kinds:
    """The table in force. `code` is an index into KINDS, or UNKNOWN."""

    def __init__(self, families: Sequence[Family], contexts: Sequence[Context]) -> None:
        self.contexts = tuple(contexts)
        self._families = [(KINDS.index(family.kind), one) for family in families for one in _patterns(family.match)]
        self._contexts = [re.compile(_together([context.match])) for context in contexts]
        self._codes: dict[tuple[str, str], int] = {}

    def code(self, category: str, name: str) -> int:
        """By name alone. Copies and fills of the copy engine are `copy` whatever they are called."""
        key = (category, name)
        if key not in self._codes:
            self._codes[key] = self._find(category, name)
        return self._codes[key]

    def context_numbers(self, category: str, name: str) -> tuple[int, ...]:
        """Which of `contexts` are about this name."""
        if category != "kernel":
            return ()
        text = normalise(name)
        return tuple(number for number, pattern in enumerate(self._contexts) if pattern.search(text))

    def _find(self, category: str, name: str) -> int:
        if category != "kernel":
            return KINDS.index("copy")
        text = normalise(name)
        return next((code for code, pattern in self._families if pattern.search(text)), UNKNOWN)


@cache
def shipped() -> Kinds:
    """The table of kinds.toml."""
    text = resources.files("decodetop.steps").joinpath("kinds.toml").read_text("utf-8")
    table = _parse(text, "kinds.toml")
    return Kinds(table.family, table.context)


def load(path: Path) -> Kinds:
    """The user's table before the shipped one. Raises ConfigError naming the file and what is wrong."""
    try:
        own = _parse(read_text(path), str(path))
        _check_patterns(own, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {path}: {why(error)}", "check the path given to --kinds") from error
    text = resources.files("decodetop.steps").joinpath("kinds.toml").read_text("utf-8")
    table = _parse(text, "kinds.toml")
    return Kinds([*own.family, *table.family], [*own.context, *table.context])


def _parse(text: str, where: str) -> _File:
    try:
        table = decode_toml(text, _File)
        for kind in (*(family.kind for family in table.family), *(rule.kind for rule in table.context)):
            if kind not in KINDS[:-1]:
                raise ConfigError(f"{where}: {kind!r} is no kind", f"kinds are {', '.join(KINDS[:-1])}")
    except NotDecoded as error:
        raise ConfigError(f"{where}: {error}", _HINT) from error
    return table


def _check_patterns(table: _File, where: str) -> None:
    """One by one, to name the bad one; the shipped table is only compiled together."""
    try:
        for pattern in (*(one for family in table.family for one in family.match), *(r.match for r in table.context)):
            re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{where}: bad regular expression {error.pattern!r}: {error}", _HINT) from error


def _patterns(match: Sequence[str]) -> list[re.Pattern[str]]:
    """One expression, or one for each where they would disturb each other: by flags, by groups, by references."""
    try:
        whole = re.compile(_together(match))
        if whole.groups == 0 and whole.flags == re.UNICODE:
            return [whole]
    except re.error:
        pass
    return [re.compile(_together([one])) for one in match]


def _together(patterns: Sequence[str]) -> str:
    r"""Any of them. `\b` in front of one is the start of a word, and in a kernel's name `_` parts words: `\bgemm` is
    in `_batched_gemm`. The place is looked at once for all of these: three quarters of the time."""
    words = [pattern[2:] for pattern in patterns if pattern.startswith(r"\b")]
    others = [pattern for pattern in patterns if not pattern.startswith(r"\b")]
    return "|".join([rf"(?<![^\W_])(?:{'|'.join(words)})", *others] if words else others)


def normalise(name: str) -> str:
    """The function's qualified name without return type and argument types; template arguments that name the work.

    `void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(..)::..>(int, ..)` becomes
    `at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda..>`.
    """
    return _normalised(_SUFFIX.sub("", name[:_NAME_MAX].rstrip()).rstrip())[:SEARCHED_MAX]


def _normalised(name: str) -> str:
    if name.startswith("_Z"):
        return _demangled(name)
    head, template = _split(name.replace(_ANONYMOUS, ""))
    head = head.split()[-1] if head.split() else name
    arguments = [argument for argument in template if not _NUMBER.match(argument)]
    if arguments and _FUNCTOR_FIRST.search(head):
        return f"{head}<{_without_parentheses(arguments[0])}>"
    if template and _FUNCTOR_ANYWHERE.search(head):
        return f"{head}<{', '.join(template)}>"
    return head


def _split(name: str) -> tuple[str, list[str]]:
    """The text before the call's arguments without template arguments, and those of its last name, one by one."""
    opened: list[str] = []
    head: list[str] = []
    arguments: list[str] = []
    start = 0
    for at, letter in enumerate(name):
        if letter == "(" and not opened:
            break
        if letter in "<(":
            opened.append(letter)
            if len(opened) == 1:
                arguments, start = [], at + 1
        elif letter == ")" and "(" in opened:
            while opened.pop() != "(":
                pass
        elif letter == ">" and opened and opened[-1] == "<" and name[at - 1] != "-":
            opened.pop()
            if not opened:
                arguments.append(name[start:at].strip())
        elif not opened:
            head.append(letter)
        elif letter == "," and len(opened) == 1:
            arguments.append(name[start:at].strip())
            start = at + 1
    return "".join(head), arguments


def _without_parentheses(text: str) -> str:
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    return text


def _demangled(name: str) -> str:
    """Identifiers of an Itanium-mangled name: the function's path, and the others in `<>` where they name the work."""
    words: list[str] = []
    path: list[str] | None = None
    at = 2
    while match := _MANGLED.search(name, at):
        if path is None and words and match.start() != at:
            path = list(words)
        if match[1] is None:
            at = match.end()
            continue
        start = match.start(2)
        word = name[start : start + int(match[1])]
        at = start + int(match[1])
        if value := _ENUMERATOR.match(name, at):
            word += value[1]
            at = value.end()
        if not word.startswith("_GLOBAL__N"):
            words.append(word)
    head = "::".join(path or words)
    if _FUNCTOR_FIRST.search(head) or _FUNCTOR_ANYWHERE.search(head):
        return f"{head}<{' '.join(words[len(path or words) :])}>"
    return head or name
