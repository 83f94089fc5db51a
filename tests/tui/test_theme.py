"""Themes: the shipped ones are whole and readable, a broken one is named field by field and never taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style

from decodetop.errors import ConfigError
from decodetop.steps.reading import KINDS
from decodetop_tui.picture import BACKGROUND, look_of
from decodetop_tui.theme import BASE, FALLBACK, ROLES, SHIPPED, Palette, Theme, find, read, theme_dir

NIGHT = (theme_dir() / "night.toml").read_text("utf-8")


def themes() -> list[Theme]:
    return list(find().by_name.values())


def by_name(name: str) -> Theme:
    return find().by_name[name]


def write(folder: Path, text: str, name: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_five_are_shipped() -> None:
    assert tuple(find().by_name) == SHIPPED == ("night", "paper", "okabe", "mono", "ansi")


@pytest.mark.parametrize("theme", themes(), ids=lambda theme: theme.name)
def test_every_role_and_kind_has_a_style(theme: Theme) -> None:
    assert set(theme.styles) == {"", *ROLES, *(f"kind.{kind}" for kind in KINDS)}
    textual = theme.for_textual()
    assert all(getattr(textual, field) for field in BASE)


def test_the_readme_s_and_docs_promises() -> None:
    """mono says all by attributes, ansi uses the terminal's sixteen only, okabe the eight colours and greys only."""
    assert all(style.color is None or style.color.is_default for style in by_name("mono").styles.values())
    assert all(
        colour is None or colour.is_default or (colour.number is not None and colour.number < 16)
        for style in by_name("ansi").styles.values()
        for colour in (style.color, style.bgcolor)
    )
    eight = {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#000000"}
    okabe = by_name("okabe").styles
    used = {colour.triplet.hex for kind in KINDS if (colour := okabe[f"kind.{kind}"].bgcolor) and colour.triplet}
    assert {colour for colour in used if not is_grey(colour)} <= eight
    assert len(used & eight) == 7


def is_grey(colour: str) -> bool:
    return len({colour[1:3], colour[3:5], colour[5:7]}) == 1


def contrast(one: Color, two: Color) -> float:
    """WCAG 2 contrast ratio."""

    def linear(colour: Color) -> float:
        assert colour.triplet is not None
        parts = [value / 255 for value in colour.triplet]
        lines = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * lines[0] + 0.7152 * lines[1] + 0.0722 * lines[2]

    high, low = sorted((linear(one), linear(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def shown(style: Style, eight_bit: bool) -> tuple[Color, Color]:
    """A style's colour and ground as a terminal of 24 or of 8 bits shows them."""
    assert style.color is not None and style.bgcolor is not None
    if not eight_bit:
        return style.color, style.bgcolor
    fore, back = (c.downgrade(ColorSystem.EIGHT_BIT).get_truecolor() for c in (style.color, style.bgcolor))
    return Color.from_triplet(fore), Color.from_triplet(back)


@pytest.mark.parametrize("name", ["night", "paper", "okabe"])
@pytest.mark.parametrize("eight_bit", [False, True], ids=["truecolor", "256"])
def test_every_word_can_be_read(name: str, eight_bit: bool) -> None:
    for role, style in by_name(name).styles.items():
        if role in ("rule", "rule.focus", "cursor", "kind.idle"):
            continue
        fore, back = shown(style, eight_bit)
        assert contrast(fore, back) >= 4.5, f"{role}: {fore.name} on {back.name}"


@pytest.mark.parametrize("name", ["night", "paper", "okabe"])
@pytest.mark.parametrize("eight_bit", [False, True], ids=["truecolor", "256"])
def test_the_row_under_the_cursor_can_be_read_too(name: str, eight_bit: bool) -> None:
    palette = Palette(by_name(name))
    for role in ("", "dim", "loud", "good", "warn", "bad", "key", "title"):
        fore, back = shown(palette(f"cursor:{role}"), eight_bit)
        assert contrast(fore, back) >= (3.0 if role == "dim" else 4.5), f"{role}: {fore.name} on {back.name}"


SIXTEEN = {
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
    " 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "linux": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa"
    " 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
}
"""The sixteen colours of two terminals, in their order; the first is their ground, the eighth their words."""


@pytest.mark.parametrize("terminal", SIXTEEN)
def test_the_terminal_s_own_colours_can_be_read_where_they_are_known(terminal: str) -> None:
    """4 and not 4.5: the brown of the Linux console has no more, and nothing else there is a warning's colour."""
    colours = [Color.parse(f"#{colour}") for colour in SIXTEEN[terminal].split()]

    def own(colour: Color | None, default: Color) -> Color:
        return default if colour is None or colour.number is None else colours[colour.number]

    for role, style in by_name("ansi").styles.items():
        if role != "cursor":
            fore, back = own(style.color, colours[7]), own(style.bgcolor, colours[0])
            assert contrast(fore, back) >= 4.0, f"{role}: {fore.name} on {back.name}"


@pytest.mark.parametrize("theme", themes(), ids=lambda theme: theme.name)
def test_every_word_of_a_picture_can_be_read(theme: Theme) -> None:
    base = look_of(theme.styles[""], BACKGROUND)
    ground = base.ground or BACKGROUND
    for role, style in theme.styles.items():
        if role in ("rule", "rule.focus", "cursor", "kind.idle"):
            continue
        look = look_of(style, ground)
        back = look.ground or ground
        fore = blend(look.colour, back, look.strength)
        assert contrast(Color.parse(fore), Color.parse(back)) >= 4.5, f"{role}: {fore} on {back}"


def blend(colour: str, ground: str, strength: float) -> str:
    """`colour` laid over `ground` with an opacity of `strength`."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + "".join(f"{round(strength * over + (1 - strength) * under):02x}" for over, under in pairs)


def test_neighbours_in_the_bar_differ_in_every_theme() -> None:
    """Kinds that are drawn side by side never look the same, letter apart."""
    for theme in themes():
        looks = [theme.styles[f"kind.{kind}"] for kind in KINDS]
        same = [pair for pair in zip(KINDS, KINDS[1:], looks, looks[1:], strict=False) if pair[2] == pair[3]]
        assert same == [], theme.name


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda text: text.replace('dim = "#8a8a8a"', 'dim = "greyish"'), "roles.dim = 'greyish'"),
        (lambda text: text.replace('primary = "#5fafff"', 'primary = "#5faf"'), "base.primary = '#5faf'"),
        (lambda text: text.replace('primary = "#5fafff"', "primary = 3"), "base.primary = 3"),
        (lambda text: text.replace('gemm = "', 'gemm = "on on '), "kinds.gemm"),
        (lambda text: re.sub(r"good = .*\n", "", text), "missing roles.good"),
        (lambda text: text.replace("[kinds]", "[kinds]\nmagic = 'bold'"), "unknown kinds.magic"),
        (lambda text: "ansy = true\n" + text, "unknown ansy"),
        (lambda text: text.replace("dark = true", 'dark = "yes"'), "dark = 'yes' is not a bool"),
        (lambda text: text + "]", "line"),
        (lambda text: "ansi = true\n" + text, "is not a colour"),
    ],
)
def test_a_broken_theme_names_its_field(tmp_path: Path, change: object, word: str) -> None:
    assert callable(change)
    path = write(tmp_path, change(NIGHT))
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert word in caught.value.message and str(path) in caught.value.message


def test_a_broken_own_theme_is_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path, NIGHT, "good")
    write(tmp_path, "dark = 1", "bad")
    found = find(tmp_path)
    assert tuple(found.by_name) == (*SHIPPED, "good")
    (problem,) = found.problems
    assert "bad.toml" in problem


def test_an_own_theme_may_replace_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, NIGHT.replace("#121212", "#000000"), "night")
    assert find(tmp_path).by_name["night"].base["background"] == "#000000"


def test_which_theme_it_starts_with() -> None:
    found = find()
    assert found.pick(None)[0].name == FALLBACK
    assert found.pick(None, no_color=True)[0].name == "mono"
    assert found.pick(None, sixteen=True)[0].name == "ansi"
    assert found.pick("paper", no_color=True)[0].name == "paper"
    theme, word = found.pick("papper")
    assert theme.name == FALLBACK and word is not None and "papper" in word and "paper" in word


def test_the_next_theme_goes_round() -> None:
    found = find()
    names = [FALLBACK]
    for _ in SHIPPED:
        names.append(found.after(names[-1]).name)
    assert tuple(names) == (*SHIPPED, FALLBACK)


def test_a_bar_keeps_its_colours_under_the_cursor() -> None:
    palette = Palette(by_name("night"))
    assert palette("cursor:kind.gemm") == palette("kind.gemm")
    assert palette("cursor:").bgcolor != palette("").bgcolor
    assert palette("nonsense") == palette("")
