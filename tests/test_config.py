"""Settings: who wins, where a value came from, and that a wrong one is named."""

from pathlib import Path

import pytest

from decodetop import config as config_module
from decodetop.cli import main
from decodetop.config import ENVIRONMENT, Settings, api_key, load
from decodetop.errors import ConfigError


@pytest.fixture(autouse=True)
def nobody_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def config(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return {"config": str(path)}


def test_defaults(tmp_path: Path) -> None:
    settings = load({}, {})
    assert settings.investigation == tmp_path / "data" / "decodetop" / "investigations" / "default"
    assert settings.endpoints == () and not settings.readonly
    assert set(settings.origin.values()) == {"default"}


def test_command_line_over_environment_over_file(tmp_path: Path) -> None:
    named = config(tmp_path, 'theme = "paper"\nrate_s = 2.0\nreadonly = true\n')
    settings = load({**named, "theme": "mono"}, {"DECODETOP_RATE_S": "0.5", "DECODETOP_THEME": "okabe"})
    assert (settings.theme, settings.rate_s, settings.readonly) == ("mono", 0.5, True)
    assert settings.origin["theme"] == "command line"
    assert settings.origin["rate_s"] == "DECODETOP_RATE_S"
    assert settings.origin["readonly"] == named["config"]


def test_a_default_file_that_may_not_be_read_costs_its_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under `su` HOME may still be another account's; nobody asked for that file."""

    def denied(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    usual = tmp_path / "config" / "decodetop" / "config.toml"
    monkeypatch.setattr(config_module, "read_text", denied)
    settings = load({}, {})
    assert settings.unread == f"can't read {usual}: Permission denied" and settings.config_path is None
    assert set(settings.origin.values()) == {"default"}
    assert main(["todo"]) == 0
    assert capsys.readouterr().err.startswith(f"decodetop: can't read {usual}: Permission denied; the defaults are in")
    for named, environ in (({"config": "x"}, {}), ({}, {"DECODETOP_CONFIG": "x"})):
        with pytest.raises(ConfigError, match="can't read x: Permission denied"):
            load(named, environ)


def test_without_a_home_an_investigation_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a folder called `~` would be made in the working directory."""
    monkeypatch.setattr(config_module, "home", lambda: None)
    with pytest.raises(ConfigError, match="no home folder") as refused:
        load({}, {})
    assert "--investigation DIR" in refused.value.hint
    assert load({"investigation": tmp_path}, {}).investigation == tmp_path


def test_the_default_file_is_read_when_there(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "decodetop"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('theme = "ansi"\n[keys]\nfreeze = "z"\n')
    settings = load({}, {})
    assert settings.theme == "ansi" and settings.keys == {"freeze": "z"}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (":30000", "http://127.0.0.1:30000"),
        ("box:8000/", "http://box:8000"),
        ("https://box", "https://box"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_endpoints_are_completed(text: str, url: str) -> None:
    assert load({"endpoints": [text]}, {}).endpoints == (url,)
    assert load({}, {"DECODETOP_ENDPOINT": f"{text}, :1"}).endpoints == (url, "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rate_s = 'fast'", "rate_s"),
        ("them = 'night'", "them"),
        ("= 1", "c.toml"),
        ("rate_s = 0", "between"),
        ("endpoints = ['http://a b']", "endpoint"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load(config(tmp_path, text), {})


@pytest.mark.parametrize("variable", ["DECODETOP_READONLY", "DECODETOP_RATE_S"])
def test_a_wrong_variable_is_named(variable: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        load({}, {variable: "perhaps"})


def test_the_key_comes_from_the_environment_or_a_file_and_stays_out_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from-file\n")
    settings = load({}, {"DECODETOP_API_KEY_FILE": str(path), "DECODETOP_API_KEY": "from-env"})
    assert api_key(settings, {"DECODETOP_API_KEY": "from-env"}) == "from-env"
    assert api_key(settings, {}) == "from-file"
    assert "from-" not in repr(settings)
    assert api_key(load({}, {}), {}) is None
    path.unlink()
    with pytest.raises(ConfigError, match="key file"):
        api_key(settings, {})


def test_every_variable_sets_a_setting() -> None:
    assert set(ENVIRONMENT) <= set(Settings.__struct_fields__)


@pytest.mark.parametrize(
    "text",
    [
        *("http://box:abc", "http://[::1", "http://::1", "http://:99999", "http://", ":0x1", "http://box:0"),
        *("http://box\0:1", "http://box:1/\x1b[31m", f"http://{'a' * 64}:1", "http://a..b:1"),
    ],
)
def test_an_address_that_is_none_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a server's address"):
        load({"endpoints": [text]}, {})


@pytest.mark.parametrize("tail", ["?api_key=sk-hidden", "/#sk-hidden"])
def test_a_key_in_an_address_is_refused_and_not_repeated(tail: str) -> None:
    with pytest.raises(ConfigError, match="query or fragment") as error:
        load({"endpoints": [f"http://box:1{tail}"]}, {})
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("text", ["41072", ":41072", "127.0.0.1:41072", "http://127.0.0.1:41072/"])
def test_a_port_alone_is_one_of_this_box(text: str) -> None:
    assert load({"endpoints": [text]}, {}).endpoints == ("http://127.0.0.1:41072",)


@pytest.mark.parametrize("text", ["0", "65536", ":99999", ""])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a server's address"):
        load({"endpoints": [text]}, {})


@pytest.mark.parametrize("field", ["investigation", "api_key_file"])
@pytest.mark.parametrize("value", ["", "~nosuchuser-here/x"])
def test_a_path_that_is_none_is_named(tmp_path: Path, field: str, value: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{field} = '{value}'\n")
    with pytest.raises(ConfigError, match=field):
        load({"config": str(path)}, {})


def test_no_settings_are_read_from_the_null_device() -> None:
    assert load({"config": "/dev/null"}, {}).config_path == Path("/dev/null")
