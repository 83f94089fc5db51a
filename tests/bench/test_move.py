"""A move as variants: what its words set, on which command, and which words are for a person."""

from __future__ import annotations

import pytest

from decodetop.bench.experiment import Original, parse
from decodetop.bench.move import Change, applied, changes, experiment_of
from decodetop.errors import UsageError
from decodetop.floor.moves import entries, forms_of

WORDS: dict[tuple[str, str, str | None], tuple[Change, ...]] = {
    ("remove --disable-cuda-graph", "sglang", None): (Change(drops=("--disable-cuda-graph",)),),
    ("remove --a=off or --b", "sglang", None): (Change(drops=("--a=off", "--b")),),
    ("--enable-mscclpp", "sglang", None): (Change(adds=(("--enable-mscclpp",),)),),
    ("--backend flashmla --page-size 64", "sglang", None): (
        Change(adds=(("--backend", "flashmla"), ("--page-size", "64"))),
    ),
    ("--backend a | b", "sglang", None): (
        Change(adds=(("--backend", "a"),)),
        Change(adds=(("--backend", "b"),)),
    ),
    ("--backend a | b", "sglang", "c"): (Change(adds=(("--backend", "c"),)),),
    ("--max-bs N, N at least the running sequences", "sglang", "32"): (Change(adds=(("--max-bs", "32"),)),),
    ("--enable-dp-attention --dp-size N", "sglang", "2"): (
        Change(adds=(("--enable-dp-attention",), ("--dp-size", "2"))),
    ),
    ("--kv bf16 (SGLang), --kv auto (vLLM)", "vllm", None): (Change(adds=(("--kv", "auto"),)),),
    ("--kv bf16 (SGLang), --kv auto (vLLM)", "sglang", None): (Change(adds=(("--kv", "bf16"),)),),
    ("--quantization fp8, or an FP8 checkpoint", "vllm", None): (Change(adds=(("--quantization", "fp8"),)),),
    ("X_BACKEND=A | B in the environment", "vllm", None): (
        Change(env={"X_BACKEND": "A"}),
        Change(env={"X_BACKEND": "B"}),
    ),
    ('--config \'{"method": "mtp", "n": 1}\'', "vllm", None): (
        Change(adds=(("--config", '{"method": "mtp", "n": 1}'),)),
    ),
    ("-ctk q8_0 -ctv q8_0", "llamacpp", None): (Change(adds=(("-ctk", "q8_0"), ("-ctv", "q8_0"))),),
}


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_the_words_of_a_move_are_its_flags(words: tuple[str, str, str | None]) -> None:
    assert changes(*words) == WORDS[words]


BY_HAND = {
    "an FP8 checkpoint with 8-bit activations": "no flag",
    "halve --tp": "no flag",
    "remove cudagraph_mode NONE from --compilation-config": "no flag",
    "start without --speculative-* (SGLang) or --speculative-config (vLLM), same load": "no flag",
    "--max-total-tokens N (SGLang), --gpu-memory-utilization lower (vLLM)": "no flag",
    "upgrade vLLM to 0.11.1 or later, then --async-scheduling": "no flag",
    "--max-bs N, N at least the running sequences": "say it: --value",
    "--fp8-gemm-backend": "say it: --value",
    "it isn't one": "no flag",
}


@pytest.mark.parametrize("words", BY_HAND)
def test_what_no_command_can_have_is_for_a_person(words: str) -> None:
    with pytest.raises(UsageError) as caught:
        changes(words, "vllm")
    assert BY_HAND[words] in str(caught.value)


def test_a_value_for_a_move_without_a_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="no choice"):
        changes("--enable-mscclpp", "sglang", "7")


def test_of_every_shipped_move_the_words_are_flags_or_said_to_be_none() -> None:
    """No word of a sentence ever gets onto a command."""
    made = 0
    for entry in entries():
        for engine in ("sglang", "vllm", "llamacpp"):
            for value in (None, "8"):
                try:
                    ways = changes(entry.set, engine, value)
                except UsageError:
                    continue
                made += 1
                words = [word for way in ways for add in way.adds for word in add]
                assert all(word.startswith(("-", "{")) or " " not in word for word in words), entry.set
                assert not {"or", "N", "lower", "then", "the", "in"} & set(words), entry.set
    assert made > 60


COMMAND = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--disable-cuda-graph", "--port", "30000")


def test_flags_come_go_and_change_their_value() -> None:
    assert applied(COMMAND, Change(drops=("--disable-cuda-graph",))) == tuple(
        word for word in COMMAND if word != "--disable-cuda-graph"
    )
    assert applied(COMMAND, Change(adds=(("--enable-mscclpp",),)))[-1] == "--enable-mscclpp"
    assert applied(COMMAND, Change(adds=(("--port", "1"),)))[-2:] == ("--port", "1")
    assert "30000" not in applied(COMMAND, Change(adds=(("--port", "1"),)))
    assert applied(("s", "--kv_dtype=fp8", "--x"), Change(adds=(("--kv-dtype", "bf16"),))) == (
        "s",
        "--x",
        "--kv-dtype",
        "bf16",
    )
    assert applied(("s", "--b", "off", "--x"), Change(drops=("--b=off",))) == ("s", "--x")
    assert applied(("s", "--b=off", "--x"), Change(drops=("--b=off", "--c"))) == ("s", "--x")


def test_a_command_that_is_so_already_is_nothing_to_try() -> None:
    for argv, change in (
        (COMMAND, Change(drops=("--enforce-eager",))),
        (("s", "--b", "on"), Change(drops=("--b=off",))),
        (("s", "--fast"), Change(adds=(("--fast",),))),
        (("s", "--kv", "fp8"), Change(adds=(("--kv", "fp8"),))),
    ):
        with pytest.raises(UsageError):
            applied(argv, change)


def test_the_variants_are_the_command_as_it_is_and_each_way() -> None:
    ways = changes("--backend a | b", "sglang")
    original = Original(stop=("down",), start=("up",))
    made = experiment_of("attention-backend", ways, COMMAND, "http://x", original=original)
    assert list(made.variants) == ["baseline", "attention-backend-a", "attention-backend-b"] and made.base == "baseline"
    assert made.variants["baseline"].argv == COMMAND and made.variants["attention-backend-b"].argv[-1] == "b"
    assert made.original == original and made.unit is None
    (env,) = changes("V_BACKEND=A in the environment", "vllm")
    variant = experiment_of("v", [env], COMMAND, "http://x").variants["v"]
    assert (variant.argv, variant.env) == (COMMAND, {"V_BACKEND": "A"})


def test_a_unit_is_overridden_with_the_command_in_its_own_quoting() -> None:
    command = ("/opt/x", "--model", "/my models/m", "--note", '50% of $HOME "now"')
    made = experiment_of("m", changes("--fast", "sglang"), command, "http://x", unit="x.service", user=True)
    assert made.variants["baseline"].override == () and made.variants["baseline"].argv == ()
    assert made.variants["m"].override == (
        "ExecStart=",
        'ExecStart=/opt/x --model "/my models/m" --note "50%% of $$HOME \\"now\\"" --fast',
    )
    assert (made.unit, made.user) == ("x.service", True)
    (env,) = changes("V_BACKEND=A in the environment", "vllm")
    assert experiment_of("v", [env], command, "http://x", unit="x").variants["v"].override == ()


def test_a_move_has_a_form_for_engine_and_release() -> None:
    assert [entry.set[:26] for entry in forms_of("graph-batch", "sglang", "0.5.14")] == ["--cuda-graph-max-bs N, N a"]
    assert [entry.since for entry in forms_of("graph-batch", "sglang", "0.5.23")] == ["0.5.15"]
    assert len(forms_of("graph-batch", "sglang", None)) == 2
    newest, oldest = forms_of("graphs-on", "sglang", "0.5.23")
    assert newest.since == "0.5.15" and oldest.since is None
    with pytest.raises(UsageError, match="no move 'faster'"):
        forms_of("faster", "sglang", None)
    with pytest.raises(UsageError, match=r"not for vLLM 0\.20"):
        forms_of("mscclpp", "vllm", "0.20")


def test_what_is_made_is_what_a_file_may_hold() -> None:
    """The same rules: two variants, an argv each."""
    made = experiment_of("m", changes("--fast", "sglang"), COMMAND, "http://x")
    lines = [f"[variants.{name}]\nargv = {list(one.argv)}" for name, one in made.variants.items()]
    assert parse("\n".join(['endpoint = "http://x"', *lines]), "x.toml").variants == made.variants
