"""What a snapshot must not tell: keys, homes and users always; hosts, addresses, paths and serials when anonymous."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from decodetop.config import login_names
from decodetop.core.state import State
from decodetop.gpu.reading import GpuReading
from decodetop.report import Privacy, markdown, report
from decodetop.report.environment import environment
from decodetop.report.page import page
from decodetop.report.privacy import Veil
from decodetop.server.reading import ServerReading
from decodetop.todo.reading import Todo, TodoReading
from support import states
from support.hostile import planted

UUID = "GPU-8f1c2d3e-1111-2222-3333-444455556666"


def told() -> State:
    """A box whose every source names its operator, its machine and its network."""
    state = states.box()
    server, gpu = state.last("server", ServerReading), state.last("gpu", GpuReading)
    assert server is not None and gpu is not None
    replace = msgspec.structs.replace
    endpoint = "http://lab-7.corp.example:30001"
    one = replace(
        server.servers[0],
        endpoint=endpoint,
        local=False,
        model="/mnt/nfs/team-x/secret/Qwen3-8B",
        command=("python", "-m", "x", "--model", "/home/mallory/ckpt/Qwen3-8B", "--api-key", "sk-verysecret99"),
        gpu_indices=None,
        gpu_uuids=(UUID,),
        reasons={"unit": "10.20.30.40 and fe80::1ff:fe23:4567:890a said no"},
    )
    item = Todo(
        id="t1", content="ask mallory: cp -r /home/mallory/x mallory@10.20.30.40:/data/mallory (not mallorytown)"
    )
    notes = Todo(id="t2", content="serial number: 1324019012345 of gpu-box-7; see /Users/peggy-sue/n.md")
    state = replace(state, header=replace(state.header, host="gpu-box-7.corp.example"))
    return states.put(
        state,
        {
            "server": replace(server, servers=(one,), current=endpoint),
            "gpu": replace(gpu, gpus=tuple(replace(card, uuid=UUID) for card in gpu.gpus)),
            "todo": TodoReading(path="/home/mallory/inv/todo.json", title="mallory asks why", todos=(item, notes)),
        },
        61,
    )


def everything(privacy: Privacy) -> str:
    """All that can be written of one state."""
    found = report(told(), privacy)
    data = msgspec.json.encode(found.data).decode()
    return "\n".join([found.markdown, data, page(found), environment(told(), "sglang", privacy)])


def test_users_homes_and_keys_are_hidden_by_default() -> None:
    text = everything(Privacy())
    for secret in ("mallory/", "mallory@", "/mallory", "peggy", "sk-verysecret99", "mallory asks"):
        assert secret not in text, secret
    assert "/home/USER/ckpt/Qwen3-8B" in text and "USER@10.20.30.40:/data/USER" in text and "USER asks why" in text
    assert "mallorytown" in text, "a name is hidden as a word, not inside others"
    assert "gpu-box-7.corp.example" in text and "/mnt/nfs/team-x/secret" in text, "hosts and paths are told by default"


def test_anonymous_hides_machine_network_and_places_too() -> None:
    text = everything(Privacy(anonymous=True))
    for secret in (
        "mallory/", "peggy", "gpu-box-7", "lab-7", "corp.example", "10.20.30.40", "fe80::", UUID, UUID[:12],
        "team-x", "/mnt/nfs", "1324019012345", "/traces/",
    ):  # fmt: skip
        assert secret not in text, secret
    assert "PATH/Qwen3-8B" in text and "host-1" in text and "http://host-" in text and "ip-1" in text


def test_the_hashes_are_of_what_was_there_so_that_both_forms_agree() -> None:
    open_, closed = report(told()).data, report(told(), Privacy(anonymous=True)).data
    assert open_.hashes == closed.hashes and [one.sha256 for one in open_.runs] == [one.sha256 for one in closed.runs]
    assert open_.captures[0].sha256 == closed.captures[0].sha256 != ""


def test_words_of_the_trade_stay_though_an_account_is_called_so() -> None:
    state = states.put(
        states.box(), {"todo": TodoReading(path="/x", title="sglang at /home/sglang/x and /home/al/y, al too")}, 61
    )
    text = markdown(state)
    assert "/home/USER/x and /home/USER/y, al too" in text, "a two-letter name may be any word"
    assert "**SGLang 0.5.15" in text and "sglang at" in text


def test_who_runs_it_is_hidden_wherever_the_name_stands() -> None:
    state = states.put(states.box(), {"todo": TodoReading(path="/x", title="trent: scratch at /scratch/trent/1")}, 61)
    assert "trent" in markdown(state)
    assert "trent" not in markdown(state, Privacy(names=("trent",)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("driver 570.86.15, NVML 12.570.86.15, tok/s 1.5/2.5", "driver 570.86.15, NVML 12.570.86.15, tok/s 1.5/2.5"),
        ("http://127.0.0.1:30000/v1/models and [::1]:8000", "http://127.0.0.1:30000/v1/models and [::1]:8000"),
        ("at::native::copy c10::BFloat16 00000000:01:00.0", "at::native::copy c10::BFloat16 00000000:01:00.0"),
        ("192.168.1.9:8000 then 192.168.1.9, 10.0.0.1.", "ip-1:8000 then ip-1, ip-2."),
        ("http://[2001:db8::7]:80 2001:db8::7", "http://[ip-1]:80 ip-1"),
        ("/root/.cache/hub/models--Qwen--Qwen3-8B/snapshots/ab12/x", "PATH/models--Qwen--Qwen3-8B"),
        ("Qwen/Qwen3-8B 8/0 ok/failed 1755/1980", "Qwen/Qwen3-8B 8/0 ok/failed 1755/1980"),
        ("MIG-11112222-3333-4444-5555-666677778888", "MIG-uuid-1"),
        ("Serial Number : 0324520045678", "Serial Number : ***"),
        ("mac 3c:ec:ef:01:02:03", "mac mac-1"),
    ],
)  # fmt: skip
def test_the_veil_hides_addresses_and_leaves_figures(text: str, wanted: str) -> None:
    assert Veil((), (), anonymous=True).text(text) == wanted


@pytest.mark.parametrize(
    ("home", "text", "wanted"),
    [
        (None, "/home/mallory/.local and /x/home/mallory", "/home/USER/.local and /x/home/USER"),
        (None, "/x/home/.local/share, /home/.snapshots/7", "/x/home/.local/share, /home/.snapshots/7"),
        ("/x/home", "/x/home/.local, /x/home/work/m, /x/home", "/x/home/.local, /x/home/work/m, /x/home"),
        ("/x/home", "/home/work/m and /y/x/home/work", "/home/USER/m and /y/x/home/USER"),
        ("/home/mallory", "/home/mallory/x /home/peggy", "/home/USER/x /home/USER"),
    ],
)
def test_what_lies_in_a_home_that_is_called_home_is_no_name(home: str | None, text: str, wanted: str) -> None:
    own = None if home is None else Path(home)
    assert Veil((), (), anonymous=False, home=own).text(text) == wanted
    state = states.put(states.box(), {"todo": TodoReading(path=text, title=text)}, 61)
    assert wanted in markdown(state, Privacy(home=own)), "nor is it hidden as one elsewhere"


def test_whoever_runs_it_is_named_by_the_home_folder_too() -> None:
    assert login_names({"HOME": "/scratch/trent/"}) == ("trent",) and login_names({"USER": "al", "HOME": "/"}) == (
        "al",
    )


def test_no_text_takes_long_to_be_looked_through_for_addresses() -> None:
    text = "f:" * 20_000 + "g"
    assert Veil((), (), anonymous=True).text(text) == text


@pytest.mark.parametrize("anonymous", [False, True])
def test_no_field_of_any_reading_lets_a_name_or_key_through(anonymous: bool) -> None:
    """The planted words stand in every text of every reading, whatever reading is added next."""
    state = planted(
        lambda text: f"{text} of /home/mallory/k for mallory sk-abcdefgh1234 at lab-7.corp.example, 10.1.2.3"
    )
    server = state.last("server", ServerReading)
    assert server is not None
    current = msgspec.structs.replace(server.servers[0], endpoint="http://lab-7.corp.example:1")
    state = states.put(state, {"server": msgspec.structs.replace(server, servers=(current,))}, 62)
    found = report(state, Privacy(anonymous=anonymous))
    assert "## Can this hardware do better?" in found.body and "## Log" in found.body, "every lane is told"
    written = [found.markdown, page(found), msgspec.json.encode(found.data).decode()]
    written += [environment(state, engine, Privacy(anonymous=anonymous)) for engine in ("sglang", "vllm")]
    for text in written:
        assert "mallory" not in text and "sk-abcdefgh1234" not in text
        if anonymous:
            assert "lab-7" not in text and "10.1.2.3" not in text
