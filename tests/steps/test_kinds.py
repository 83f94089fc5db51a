"""Kinds by name: the reviewed list of every kernel in the recordings, the traps, and names from other boxes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from decodetop.errors import ConfigError
from decodetop.steps.kinds import SEARCHED_MAX, UNKNOWN, load, normalise, shipped
from decodetop.steps.reading import KINDS

NAMES = Path(__file__).with_name("kernel_names.tsv")
"""kind, category, full name; `?` = decided by its neighbours. Made once, then read line by line by a person."""

KNOWN = Path(__file__).with_name("known_names.tsv")
"""From the sources of vLLM, SGLang, FlashInfer, FlashMLA, DeepGEMM, DeepEP, TensorRT-LLM, aiter and torch."""
LIKELY = Path(__file__).with_name("likely_names.tsv")
"""As those, llama.cpp, cuDNN and mscclpp write names; each judged by hand, not all of them seen in a trace."""


def reviewed(*paths: Path) -> list[tuple[str, str]]:
    """(kind, name) of every line."""
    lines = [line.split("\t") for path in paths for line in path.read_text("utf-8").splitlines()]
    return [(line[0], line[-1]) for line in lines]


def kind(name: str, category: str = "kernel") -> str:
    code = shipped().code(category, name)
    return "?" if code == UNKNOWN else KINDS[code]


def test_every_kernel_of_the_recordings_has_its_reviewed_kind() -> None:
    lines = [line.split("\t") for line in NAMES.read_text("utf-8").splitlines()]
    assert len(lines) == 209
    wrong = [
        (name, expected, kind(name, category)) for expected, category, name in lines if kind(name, category) != expected
    ]
    assert wrong == []
    undecided = {name for expected, _, name in lines if expected == "?"}
    assert undecided == {f"triton_{what}_fused_{n}" for what, n in
                         (("red", 0), ("red", 1), ("red", 2), ("red", 3), ("red", 4),
                          ("poi", 1), ("poi", 2), ("poi", 3), ("poi", 4))}  # fmt: skip


def test_names_that_the_engines_have_are_of_their_kind() -> None:
    names = reviewed(KNOWN, LIKELY)
    assert len(names) > 600 and len({name for _, name in names}) == len(names)
    assert [(name, expected, kind(name)) for expected, name in names if kind(name) != expected] == []


def mangled(name: str) -> str | None:
    """The name as a compiler of the Itanium ABI writes it, with an `int` for what else is in its arguments."""
    head, arguments = name.removeprefix("void ").split("(", 1)[0].partition("<")[::2]
    if not arguments or head == "std::enable_if" or not all(part.isidentifier() for part in head.split("::")):
        return None
    path = "".join(f"{len(part)}{part}" for part in head.split("::"))
    return f"_ZN{path}ILi128ELb1EiEEvPT_i"


def test_a_name_keeps_its_kind_in_its_other_forms() -> None:
    """Mangled; with what ROCm and older Triton add. Where the kind stands in a template argument it is lost."""
    told_by_argument = ("elementwise_kernel", "reduce_kernel", "device_kernel", "Kernel", "Kernel2", "kentry", "_impl",
                        "fp8_gemm_kernel", "op_kernel", "multi_tensor_apply_kernel")  # fmt: skip
    tried = 0
    for expected, name in reviewed(KNOWN, LIKELY):
        other = mangled(name)
        if other is not None and not name.split("<")[0].endswith(told_by_argument):
            tried += 1
            assert kind(other) == expected, (name, other, normalise(other))
        if name.isidentifier():
            tried += 1
            assert kind(f"{name}.kd") == kind(f"{name}_0d1d2de3c") == expected, name
    assert tried > 400


def test_numbers_in_a_mangled_name_are_no_lengths() -> None:
    name = "_ZN9deep_gemm24sm100_fp8_gemm_1d1d_implILj0ELj4096EN4cute4UMMA5MajorELNS_8GemmTypeE2EEEvPf"
    assert normalise(name) == "deep_gemm::sm100_fp8_gemm_1d1d_impl<cute UMMA Major GemmType2>"
    assert kind(name) == "moe" and kind(name.replace("TypeE2E", "TypeE0E")) == "gemm"


TRAPS = [
    # flash in a norm, attention without a word of it
    ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, unsigned int)", "norm"),
    ("_fwd_grouped_kernel_stage1", "attention"),
    ("void flash::prepare_varlen_num_blocks_kernel<1, false>(int, int)", "attention"),
    # reduce in a collective and in a GEMM
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "communication"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "gemm"),
    # flash and Fp8 in a KV write, fp8 in a GEMM, copy in a cast
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(int)", "kv_write"),
    ("void cutlass::device_kernel<cutlass_3x_gemm_sm90_fp8_M64<cutlass::float_e4m3_t>>(int)", "gemm"),
    ("void per_token_quant_fp8_kernel<__nv_bfloat16>(int)", "quantize"),
    ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::float8_copy_kernel_cuda"
     "(at::TensorIteratorBase&)::{lambda()#1}>>(int)", "copy"),
    # store in a rope, sort in a routing, a memcpy that is a kernel
    ("void (anonymous namespace)::fused_rope_store_kernel<true, 128l>((anonymous namespace)::P)", "rope"),
    ("void count_and_sort_expert_tokens_kernel<int>(int const*, int*)", "moe"),
    ("memcpy128", "copy"),
    # a cast in the arguments of an integer add
    ("void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<long>, std::array<char*, 3ul>, 4, "
     "at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1> >(int)", "elementwise"),
    # a comparison in the return type
    ("std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
     "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8, true>(c10::BFloat16*, long)", "norm"),
]  # fmt: skip
OTHERS = [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8, __nv_bfloat16>(int)",
     "communication"),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 4>(int)", "communication"),
    ("void deep_ep::internode_ll::dispatch<false, 7168>(void*)", "communication"),
    ("fused_moe_kernel", "moe"),
    ("void vllm::moe::topkGatingSoftmax<4, 128, 4, 16>(float const*)", "moe"),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>(int)",
     "moe"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 128u, (deep_gemm::GemmType)2>(float*)", "moe"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 128u, (deep_gemm::GemmType)0>(float*)", "gemm"),
    ("void marlin::Marlin<__nv_bfloat16, 128, 4>(int4 const*)", "gemm"),
    ("Cijk_Alik_Bljk_BBS_BH_MT64x64x64_SN_1LDSB", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(int)", "gemm"),
    ("kernel_unified_attention_3d", "attention"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1, 4, 8>(int)", "attention"),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16HQk128HV128PagedKvCausal", "attention"),
    ("void flash::flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64>>(int)", "attention"),
    ("fused_recurrent_gated_delta_rule_packed_decode_kernel", "linear_attention"),
    ("_causal_conv1d_update_kernel", "linear_attention"),
    ("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>(int)", "kv_write"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "norm"),
    ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)", "sampling"),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>(float*)", "sampling"),
    ("_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelINS_4TileEEEEEvT_", "attention"),
    ("_ZN5aiter18add_rmsnorm_quant_kernelILi8EEEvPf", "norm"),
    ("__amd_rocclr_copyBuffer.kd", "copy"),
    ("my_own_kernel_7", "?"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), [*TRAPS, *OTHERS])
def test_names(name: str, expected: str) -> None:
    assert kind(name) == expected, normalise(name)


def test_the_copy_engine_is_copy_whatever_it_is_called() -> None:
    assert kind("Memset (Device)", "gpu_memset") == kind("Memset (Unknown)", "gpu_memset") == "copy"
    assert kind("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy") == "copy"


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)",
         "at::native::reduce_kernel<at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>"),
        ("void (anonymous namespace)::act_and_mul_kernel<int, ((anonymous namespace)::Kind)0, true>(int)",
         "act_and_mul_kernel"),
        ("triton_poi_fused_4", "triton_poi_fused_4"),
        ("_ZN4vllm15rms_norm_kernelIfEEvPT_", "vllm::rms_norm_kernel"),
        ("", ""),
        (">>>)))<<<(((", ">>>)))"),
        ("void", "void"),
        ("_Z", "_Z"),
    ],
)  # fmt: skip
def test_normalised(name: str, normal: str) -> None:
    assert normalise(name) == normal


PARTS = [" ", "[clone ", "9", "<", "(", "a::", '[{"content":"a"},', "_", "1a", "triton_poi_", "index_select_mul",
         "_mm_", "clamp_max_abs", "grouped<a>"]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("begin", ["", "_Z", "_ZN", "triton_poi_fused_", "<<<<<<", "void at::native::reduce_kernel<"])
def test_names_made_to_be_slow_or_absurd(begin: str, part: str) -> None:
    """`_Z` and 5,000 digits ended the reading of the whole trace; 20,000 blanks took a minute; where three free
    stretches of a pattern could share 16,384 characters it took 7 s."""
    for name in (f"{begin}{part * 20_000}a", f"{begin}{'<' * 9000}{')' * 9000}", f"{begin}{'(' * 9000}{')' * 9000}"):
        assert len(normalise(name)) <= SEARCHED_MAX
        assert shipped().code("kernel", name) in (UNKNOWN, *range(len(KINDS)))


def test_a_long_name_takes_no_more_than_its_length() -> None:
    """Against a plain one as long, for the machine may be busy: its cube would be thousands of times that."""

    def cpu_s(name: str) -> float:
        table, spent = shipped(), []
        for times in range(3):
            begun = time.process_time()
            table.code("kernel", f"{name}{times}")
            table.context_numbers("kernel", f"{name}{times}")
            spent.append(time.process_time() - begun)
        return min(spent)

    plain = cpu_s("abcdefgh" * 2048)
    for part in PARTS:
        for begin in ("triton_poi_", "_ZN", "<<"):
            assert cpu_s((begin + part * 16_384)[:16_384]) < 60 * plain, (begin, part)


def test_a_file_of_the_user_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "kinds.toml"
    path.write_text('[[family]]\nkind = "gemm"\nmatch = ["my_own_kernel", "^_fwd_kernel$"]\n')
    own = load(path)
    assert KINDS[own.code("kernel", "my_own_kernel_7")] == "gemm"
    assert KINDS[own.code("kernel", "_fwd_kernel")] == "gemm", "the user's word over ours"
    assert KINDS[own.code("kernel", "fused_moe_kernel")] == "moe"


def test_in_front_of_a_pattern_a_word_may_begin_behind_an_underscore(tmp_path: Path) -> None:
    path = tmp_path / "kinds.toml"
    path.write_text("[[family]]\nkind = 'gemm'\nmatch = ['\\bmine', 'not_\\bthis']\n")
    own = load(path)
    assert KINDS[own.code("kernel", "void our::_all_mine_7<int>(int)")] == "gemm"
    assert own.code("kernel", "examine_it") == UNKNOWN


@pytest.mark.parametrize("patterns", [["xyz", "(?i)ABC"], ["(?P<a>xyz)", "(?P<a>abc)"], [r"(y)z", r"(a)bc\1?"]])
def test_patterns_of_one_family_do_not_disturb_each_other(patterns: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kinds.toml"
    path.write_text("[[family]]\nkind = 'gemm'\nmatch = [" + ", ".join(f"'{one}'" for one in patterns) + "]\n")
    own = load(path)
    assert {KINDS[own.code("kernel", name)] for name in ("abc", "xyz")} == {"gemm"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[[family]]\nkind = "gem"\nmatch = ["x"]\n', "'gem' is no kind"),
        ('[[family]]\nkind = "idle"\nmatch = ["x"]\n', "'idle' is no kind"),
        ('[[family]]\nkind = "gemm"\nmatch = ["("]\n', "bad regular expression"),
        ('[[family]]\nkind = "gemm"\nmatch = "x"\n', "expected a list, got text"),
        ('[[famliy]]\nkind = "gemm"\n', "unknown field"),
        ("kind = [", "kinds.toml"),
    ],
)
def test_a_wrong_file_is_named(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "kinds.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=word.replace("(", r"\(")):
        load(path)
    with pytest.raises(ConfigError, match="can't read"):
        load(tmp_path / "none.toml")
