"""Themes: one TOML format for shipped and own ones, checked field by field before Textual sees them.

`[base]` are the screen's own colours, `[roles]` and `[kinds]` what `paint.Span.style` names. docs/themes.md tells more.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rich.color import ColorParseError
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color
from textual.color import ColorParseError as TextualColorError
from textual.theme import Theme as TextualTheme

from decodetop.core.decode import NotDecoded, decode_toml
from decodetop.core.regular import read_text
from decodetop.errors import ConfigError
from decodetop.steps.reading import KINDS

FALLBACK = "night"
NO_COLOR_THEME = "mono"
SIXTEEN_COLOURS_THEME = "ansi"
SHIPPED = ("night", "paper", "okabe", "mono", "ansi")
"""In the order of the key T."""

BASE = ("foreground", "background", "surface", "panel", "primary", "secondary", "accent", "warning", "error", "success")
"""Colours of the screen itself; Textual's widgets (input lines) use them too."""

ROLES: Mapping[str, str] = {
    "dim": "labels, units, what is old or of no concern",
    "loud": "the one figure of a row that counts",
    "good": "as it should be",
    "warn": "worth a look",
    "bad": "wrong, failed, lost",
    "key": "a key to press",
    "title": "the name of a pane",
    "title.focus": "the name of the pane in focus",
    "rule": "the lines between panes",
    "rule.focus": "the line over the pane in focus",
    "cursor": "laid over the row selected",
}
"""What a span may be, and what for. `cursor` should set a ground or an attribute."""

ANSI_COLOURS = tuple(
    f"{bright}{name}"
    for bright in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
"""Names of the terminal's sixteen colours, allowed where `ansi = true`."""

ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse", "not")


class Theme(NamedTuple):
    """A checked theme. `styles` has a style for every role and kind; `path` is where it was read."""

    name: str
    title: str
    dark: bool
    ansi: bool
    base: Mapping[str, str]
    styles: Mapping[str, Style]
    path: Path

    def for_textual(self) -> TextualTheme:
        base = {role: f"ansi_{colour}" if self.ansi else colour for role, colour in self.base.items()}
        return TextualTheme(
            name=self.name,
            dark=self.dark,
            ansi=self.ansi,
            foreground=base["foreground"],
            background=base["background"],
            surface=base["surface"],
            panel=base["panel"],
            boost=base["surface"],
            primary=base["primary"],
            secondary=base["secondary"],
            accent=base["accent"],
            warning=base["warning"],
            error=base["error"],
            success=base["success"],
            variables=_variables(base),
        )


class Themes(NamedTuple):
    """What was found: by name, shipped first; and one line for each file that can't be used."""

    by_name: Mapping[str, Theme]
    problems: tuple[str, ...]

    def pick(self, wanted: str | None, *, no_color: bool = False, sixteen: bool = False) -> tuple[Theme, str | None]:
        """The theme to start with, and a word when it is not the one that was asked for."""
        if wanted is None:
            wanted = NO_COLOR_THEME if no_color else SIXTEEN_COLOURS_THEME if sixteen else FALLBACK
        if wanted in self.by_name:
            return self.by_name[wanted], None
        return self.by_name[FALLBACK], f"no theme {wanted!r}: there are {', '.join(self.by_name)}"

    def after(self, name: str) -> Theme:
        """The next one, for the key T."""
        names = list(self.by_name)
        at = names.index(name) if name in names else -1
        return self.by_name[names[(at + 1) % len(names)]]


def theme_dir() -> Path:
    """The shipped themes: in the installed package, else in the source checkout."""
    packaged = Path(str(files("decodetop_tui"))) / "themes"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "themes"


def find(own: Path | None = None) -> Themes:
    """The shipped themes and those in the folder `own`; a broken one of `own` is named and left out.

    Raises ConfigError if a shipped theme is broken: then the installation is.
    """
    found = {name: read(theme_dir() / f"{name}.toml") for name in SHIPPED}
    problems: list[str] = []
    for path in _listed(own, problems) if own is not None else ():
        try:
            theme = read(path)
        except ConfigError as error:
            problems.append(error.message)
        else:
            found[theme.name] = theme
    return Themes(found, tuple(problems))


def _listed(own: Path, problems: list[str]) -> list[Path]:
    """The theme files in a folder that need not be there, and may belong to somebody else."""
    try:
        return sorted(path for path in own.iterdir() if path.suffix == ".toml")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        problems.append(f"can't read {own}: {error.strerror or error}")
    return []


def read(path: Path) -> Theme:
    """The theme in a file; its name is the file's. Raises ConfigError naming file, field and value."""
    try:
        table = decode_toml(read_text(path))
    except OSError as error:
        raise ConfigError(f"can't read theme {path}: {error.strerror}") from error
    except (NotDecoded, UnicodeDecodeError) as error:
        raise ConfigError(f"theme {path}: {error}") from error
    fields = {"title": str, "dark": bool, "ansi": bool, "base": dict, "roles": dict, "kinds": dict}
    _check_names(path, "", table, required=("base", "roles", "kinds"), known=tuple(fields))
    for field, kind in fields.items():
        if field in table and not isinstance(table[field], kind):
            raise ConfigError(f"theme {path}: {field} = {table[field]!r} is not a {kind.__name__}")
    ansi = bool(table.get("ansi", False))
    base, roles, kinds = table["base"], table["roles"], table["kinds"]
    _check_names(path, "base.", base, required=BASE, known=BASE)
    _check_names(path, "roles.", roles, required=tuple(ROLES), known=tuple(ROLES))
    _check_names(path, "kinds.", kinds, required=KINDS, known=KINDS)
    for role, colour in base.items():
        _check_colour(path, f"base.{role}", colour, ansi)
    ground = Style(color=base["foreground"], bgcolor=base["background"])
    styles = {"": ground}
    for role, text in roles.items():
        styles[role] = _style(path, f"roles.{role}", text, ansi, Style() if role == "cursor" else ground)
    for kind, text in kinds.items():
        styles[f"kind.{kind}"] = _style(path, f"kinds.{kind}", text, ansi, ground)
    title = str(table.get("title", path.stem))
    return Theme(path.stem, title, bool(table.get("dark", True)), ansi, base, styles, path)


def fields_markdown() -> list[str]:
    """The table of docs/themes.md."""
    lines = ["| field | what for |", "|---|---|"]
    lines += [f"| `base.{name}` | the screen, and input lines |" for name in BASE]
    lines += [f"| `roles.{name}` | {what} |" for name, what in ROLES.items()]
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    return [*lines, f"| `kinds.*` | {kinds} |"]


class Palette:
    """Roles as styles, in the theme in use. `cursor:ROLE` is a role on the selected row."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self._made: dict[str, Style] = {}

    def use(self, theme: Theme) -> None:
        self.theme = theme
        self._made.clear()

    def __call__(self, role: str) -> Style:
        """An unknown role looks like plain text."""
        style = self._made.get(role)
        if style is None:
            style = self._made[role] = self._make(role)
        return style

    def _make(self, role: str) -> Style:
        styles = self.theme.styles
        over, _, under = role.rpartition(":")
        style = styles.get(under, styles[""])
        if over != "cursor" or under.startswith("kind."):
            return style  # a bar keeps its colours on the selected row
        return style + styles["cursor"]


def _check_names(
    path: Path, where: str, table: Mapping[str, Any], required: tuple[str, ...], known: tuple[str, ...]
) -> None:
    unknown = [name for name in table if name not in known]
    missing = [name for name in required if name not in table]
    if unknown:
        raise ConfigError(f"theme {path}: unknown {where}{', '.join(unknown)}", f"known are {', '.join(known)}")
    if missing:
        raise ConfigError(f"theme {path}: missing {where}{', '.join(missing)}", "copy a shipped theme to start from")


def _check_colour(path: Path, field: str, colour: Any, ansi: bool) -> None:
    allowed = "one of the 16 names or default" if ansi else "#rrggbb"
    refused = ConfigError(f"theme {path}: {field} = {colour!r} is not a colour", f"use {allowed}")
    if not isinstance(colour, str):
        raise refused
    if ansi:
        if colour != "default" and colour not in ANSI_COLOURS:
            raise refused
        return
    try:
        Color.parse(colour)
    except TextualColorError as error:
        raise refused from error
    if not colour.startswith("#") or len(colour) != 7:
        raise refused


def _style(path: Path, field: str, text: Any, ansi: bool, ground: Style) -> Style:
    """`[attribute...] [colour] [on colour]`, laid over `ground`."""
    refused = ConfigError(f"theme {path}: {field} = {text!r} is not a style", "for example 'bold #ffaf5f on #1c1c1c'")
    if not isinstance(text, str):
        raise refused
    for word in text.split():
        if word not in ATTRIBUTES and word != "on":
            _check_colour(path, field, word, ansi)
    try:
        return ground + Style.parse(text)
    except (StyleSyntaxError, ColorParseError) as error:
        raise refused from error


def _variables(base: Mapping[str, str]) -> dict[str, str]:
    """Textual's own variables that would else be blends, which 256 and 16 colours can't show."""
    return {
        "input-cursor-background": base["foreground"],
        "input-cursor-foreground": base["background"],
        "input-cursor-text-style": "reverse" if base["foreground"] == "ansi_default" else "none",
        "input-selection-background": base["primary"],
        "input-selection-foreground": base["background"],
        "ansi-background": base["background"],
        "ansi-foreground": base["foreground"],
        "border": base["primary"],
        "border-blurred": base["panel"],
    }
