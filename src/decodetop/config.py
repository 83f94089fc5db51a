"""Settings: command line over environment over file over default, each with where it came from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import platformdirs

from decodetop.core.atomic import make_folder, replace
from decodetop.core.decode import NotDecoded, decode_lax, decode_toml
from decodetop.core.regular import home, is_root, named_path, read_text, why
from decodetop.errors import ConfigError, DataError, UsageError

ENVIRONMENT = {
    "endpoints": "DECODETOP_ENDPOINT",
    "investigation": "DECODETOP_INVESTIGATION",
    "readonly": "DECODETOP_READONLY",
    "theme": "DECODETOP_THEME",
    "rate_s": "DECODETOP_RATE_S",
    "quiet": "DECODETOP_QUIET",
    "mouse": "DECODETOP_MOUSE",
    "api_key_file": "DECODETOP_API_KEY_FILE",
    "server_log": "DECODETOP_SERVER_LOG",
}
"""Setting -> environment variable. The key itself comes from DECODETOP_API_KEY or from the file, never from argv."""


def default_config_path() -> Path:
    return Path(platformdirs.user_config_dir("decodetop")) / "config.toml"


def investigations_root() -> Path:
    """Where the user's investigations stand side by side."""
    return Path(platformdirs.user_data_dir("decodetop")) / "investigations"


def default_investigation() -> Path:
    return investigations_root() / "default"


def opened_investigation() -> Path | None:
    """The one that `decodetop investigation open` chose; None if none was, or what says so can't be read."""
    folder = _opened().get("folder")
    return Path(folder) if isinstance(folder, str) and folder and "\0" not in folder else None


def open_investigation(folder: Path) -> None:
    """Make it the one that is used where nothing else is named. Raises DataError."""
    make_folder(investigations_root())
    schema = _opened().get("schema", 1)
    if schema != 1:
        message = f"{investigations_root() / _OPENED} has schema {schema!r}; this decodetop leaves it alone"
        raise DataError(message, f"use --investigation {folder}, or the newer decodetop that wrote it")
    # escaped, so that a name that is not UTF-8 comes back as it is
    data = json.dumps({"schema": 1, "folder": str(folder.absolute())})
    replace(investigations_root() / _OPENED, data.encode() + b"\n")


def _opened() -> dict[str, Any]:
    try:
        kept = decode_lax(read_text(investigations_root() / _OPENED))
    except (OSError, UnicodeDecodeError, NotDecoded):
        return {}
    return kept if isinstance(kept, dict) else {}


_OPENED = ".opened.json"


UNREAD_HINT = "make it readable, or name another one: --config FILE"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force. `origin[field]` is `default`, a file's path, a variable's name or `command line`; of the
    investigation also `opened`. `follow` = agents' plans to show instead of those found; `server_log` = the
    log of the first endpoint, or of the only server; `unread` = why the usual settings file counts for nothing.
    """

    endpoints: tuple[str, ...] = ()
    investigation: Path = msgspec.field(default_factory=default_investigation)
    readonly: bool = False
    theme: str | None = None
    rate_s: float = 1.0
    quiet: bool = False
    mouse: bool = False
    api_key_file: Path | None = None
    server_log: Path | None = None
    follow: tuple[Path, ...] = ()
    keys: dict[str, str] = {}
    config_path: Path | None = None
    unread: str | None = None
    origin: dict[str, str] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The settings file. Every key is optional."""

    endpoints: list[str] = []
    investigation: str | None = None
    readonly: bool = False
    theme: str | None = None
    rate_s: float | None = None
    quiet: bool = False
    mouse: bool = False
    api_key_file: str | None = None
    server_log: str | None = None
    follow: list[str] = []
    keys: dict[str, str] = {}


def load(cli: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """`cli` holds what was typed (absent or None = not typed). Raises ConfigError naming the file or variable."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origin = _origin()
    named = cli["config"] if cli.get("config") is not None else environ.get("DECODETOP_CONFIG") or None
    path = default_config_path() if named is None else _path(named, "--config")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        message = f"can't read {path}: {why(error)}"
        if named is not None or isinstance(error, UnicodeDecodeError):
            hint = "check the path given to --config" if named is not None else "mend it, or move it away"
            raise ConfigError(message, hint) from error
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            values["unread"] = message  # of another account, for example: nothing that was asked for
    else:
        for field, value in _parsed(text, path).items():
            values[field], origin[field] = value, str(path)
        values["config_path"] = path
    for field, variable in ENVIRONMENT.items():
        if environ.get(variable):
            values[field], origin[field] = _from_text(field, environ[variable], variable), variable
    for field in origin:
        if cli.get(field) not in (None, [], ()):
            values[field], origin[field] = cli[field], "command line"
    if "investigation" not in values and (opened := opened_investigation()) is not None:
        values["investigation"], origin["investigation"] = opened, "opened"
    if "investigation" not in values and home() is None and not environ.get("XDG_DATA_HOME"):
        message = "this account has no home folder to keep an investigation in"
        raise ConfigError(message, "set HOME, or name a folder: --investigation DIR")
    return _resolve(values, origin)


def defaults() -> Settings:
    """What would be in force without a file, a variable or an option."""
    return Settings(origin=_origin())


def _origin() -> dict[str, str]:
    return {field: "default" for field in Settings.__struct_fields__ if field not in _NO_SETTINGS}


_NO_SETTINGS = ("origin", "config_path", "unread")


def _path(text: str | Path, what: str) -> Path:
    try:
        return named_path(text, what)
    except UsageError as error:
        raise ConfigError(error.message, error.hint) from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        parsed = decode_toml(text)
        decode_toml(text, _File)
    except NotDecoded as error:
        known = ", ".join(_File.__struct_fields__)
        raise ConfigError(f"{path}: {error}", f"settings are: {known}") from error
    return parsed


def _from_text(field: str, text: str, variable: str) -> Any:
    if field == "endpoints":
        return [part for part in text.replace(",", " ").split() if part]
    if field in ("readonly", "quiet", "mouse"):
        if text.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise ConfigError(f"{variable}={text!r} is neither yes nor no", "use 1 or 0")
        return text.lower() in ("1", "true", "yes")
    if field == "rate_s":
        try:
            return float(text)
        except ValueError as error:
            raise ConfigError(f"{variable}={text!r} is not a number of seconds", "use for example 1 or 0.5") from error
    return text


def _resolve(values: dict[str, Any], origin: dict[str, str]) -> Settings:
    values = dict(values)
    if "endpoints" in values:
        values["endpoints"] = tuple(_endpoint(text, origin["endpoints"]) for text in values["endpoints"])
    for field in ("investigation", "api_key_file", "server_log"):
        if values.get(field) is not None:
            values[field] = _path(values[field], f"{field} ({origin[field]})")
    if is_root(Path(values.get("investigation", "."))):
        message = f"the investigation ({origin['investigation']}) is the root folder"
        raise ConfigError(message, "name a folder of its own: its files lie side by side")
    if "follow" in values:
        values["follow"] = tuple(_path(name, f"follow ({origin['follow']})") for name in values["follow"])
    rate_s = values.get("rate_s", 1.0)
    if not 0.1 <= float(rate_s) <= 3600:
        raise ConfigError(
            f"rate_s = {rate_s} ({origin['rate_s']}) is not between 0.1 and 3600 seconds", "use for example 1"
        )
    return Settings(**values, origin=origin)


def _endpoint(text: str, where: str) -> str:
    """`http(s)://host:port` without a trailing slash; a bare host:port, :port or port is completed."""
    url = text.strip().rstrip("/")
    port = url.removeprefix(":")
    if port.isascii() and port.isdecimal():
        url = f"127.0.0.1:{port}"
    if "://" not in url:
        url = f"http://{url}"
    scheme, _, rest = url.partition("://")
    if "?" in rest or "#" in rest:  # a key may stand there: it is not repeated
        message = f"an endpoint ({where}) holds more than an address: a query or fragment"
        raise ConfigError(message, "use for example http://127.0.0.1:30000; keys come from DECODETOP_API_KEY")
    try:
        parts = urlsplit(url)
        addressed = bool(parts.hostname) and (parts.port is None or parts.port > 0) and url.count("//") == 1
        addressed = addressed and parts.hostname not in ("http", "https") and url.isprintable()
        (parts.hostname or "").encode("idna")
    except ValueError:  # no port number, broken brackets, or a part of the name that is too long
        addressed = False
    if scheme not in ("http", "https") or not addressed or " " in rest or "@" in rest:
        message = (
            f"endpoint {text!r} ({where}) is not a server's address"
            if "@" not in rest
            else (f"an endpoint ({where}) holds a user name or key")
        )
        raise ConfigError(message, "use for example http://127.0.0.1:30000; keys come from DECODETOP_API_KEY")
    return url


def api_key(settings: Settings, environ: Mapping[str, str] | None = None) -> str | None:
    """The key for the servers, from DECODETOP_API_KEY or the file; it lives nowhere else. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    if environ.get("DECODETOP_API_KEY"):
        return environ["DECODETOP_API_KEY"].strip()
    if settings.api_key_file is None:
        return None
    try:
        return read_text(settings.api_key_file).strip() or None
    except (OSError, UnicodeDecodeError) as error:
        where = settings.origin.get("api_key_file", "")
        hint = f"make it, or take api_key_file out ({where})"
        raise ConfigError(f"can't read the key file {settings.api_key_file}: {why(error)}", hint) from error


def login_names(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names of whoever runs this, so that they can be kept out of what is shared; that of the home folder is one."""
    environ = os.environ if environ is None else environ
    names = [environ.get(variable) for variable in ("USER", "LOGNAME", "SUDO_USER")]
    names.append(Path(environ.get("HOME", "")).name)
    return tuple(dict.fromkeys(name for name in names if name))
