"""How a checkpoint says which modules are quantised: `quantization_config` or `hf_quant_config.json` -> `Scheme`.

Never assume that an "NVFP4 model" is NVFP4 everywhere: attention and head are often left in BF16 (reference notes on
the decode floor, section 2.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from decodetop.errors import DataError
from decodetop.floor.formats import FORMATS, LINEAR, PER_TOKEN_HEAD, Format, Rule, Scheme, grouped
from decodetop.floor.patterns import expression

ANY_LINEAR = "Linear"
_WITH_HEAD = LINEAR | {"head", "router"}
"""modelopt and compressed-tensors quantise every linear layer that they do not exclude."""

MODELOPT = {
    "FP8": "fp8", "FP8_PB_WO": "fp8_block", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "w4a16_nvfp4", "INT4_AWQ": "int4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4",
    "INT8_SQ": "int8", "MXFP8": "mxfp8", "MXFP4": "mxfp4",
}  # fmt: skip
INTEGER_BITS = (2, 3, 4, 8)
NV, MX = 16, 32
"""Weights a scale of NVFP4, and of MXFP4 and MXFP8."""
GROUP_MAX = 1 << 17
"""No layer is wider."""
SPARSE_FORMATS = ("sparse", "marlin-24")
SUPPORTED = ("fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq")


def scheme_of(config: Mapping[str, Any] | None, separate: Mapping[str, Any] | None, base: Format, where: str) -> Scheme:
    """`separate` = the content of `hf_quant_config.json`. Raises DataError for a scheme that is not known."""
    config = config or None
    if config is None and separate is None:
        return Scheme(base=base)
    reader = _Reader(base, where)
    inner = separate.get("quantization") if separate is not None else None
    method = str((config or {}).get("quant_method", "")).lower().replace("_", "-")
    if isinstance(inner, Mapping) and (not method or method.startswith("modelopt")):
        return reader.modelopt(inner)
    if config is None:
        raise reader.wrong("hf_quant_config.json holds no table 'quantization'")
    if not method and config.get("quant_algo"):
        method = "modelopt"
    if method in ("fp8", "fbgemm-fp8"):
        return reader.fp8(config)
    if method == "mxfp4":
        return reader.mxfp4(config)
    if method == "compressed-tensors":
        return reader.compressed_tensors(config)
    if method.startswith("modelopt"):
        return reader.modelopt(config)
    if method in ("awq", "gptq", "gptq-marlin", "awq-marlin"):
        return reader.integer(config, method.removesuffix("-marlin"))
    raise reader.wrong(f"quantisation {str(config.get('quant_method'))[:40]!r} is not known")


def forced(name: str, base: Format) -> Scheme:
    """What `--weights-dtype` asks for: the linear layers in that format, head and router as they are."""
    chosen = FORMATS[name]
    if name in ("bf16", "fp16", "fp32"):
        return Scheme(base=chosen)
    return Scheme(base=base, default=chosen, name=f"{name} (asked for)")


class _Reader:
    def __init__(self, base: Format, where: str) -> None:
        self.base = base
        self.where = where

    def wrong(self, message: str) -> DataError:
        return DataError(
            f"{self.where}: {message}",
            f"known are {', '.join(SUPPORTED)}; else give the checkpoint's folder: its headers hold the bytes",
        )

    def fp8(self, config: Mapping[str, Any]) -> Scheme:
        chosen = self._block(config, "weight_block_size") or FORMATS["fp8"]
        kept = self._names(config, "modules_to_not_convert", "ignored_layers")
        return Scheme(base=self.base, default=chosen, rules=(Rule(kept, None),), name=chosen.name)

    def mxfp4(self, config: Mapping[str, Any]) -> Scheme:
        """gpt-oss: the experts only, whatever else is not named."""
        kept = self._names(config, "modules_to_not_convert")
        return Scheme(
            base=self.base,
            default=FORMATS["mxfp4"],
            roles=frozenset({"expert"}),
            rules=(Rule(kept, None),),
            name="mxfp4",
        )

    def integer(self, config: Mapping[str, Any], name: str) -> Scheme:
        chosen = self._integer(config, name)
        kept = self._names(config, "modules_to_not_convert")
        roles = LINEAR | {"head"} if config.get("lm_head") is True else LINEAR
        return Scheme(
            base=self.base,
            default=msgspec.structs.replace(chosen, name=f"{name}_{chosen.name}"),
            roles=roles,
            rules=(*self._exceptions(config, name), Rule(kept, None)),
            name=f"{name} {_first(config, 'bits', 'w_bit')} bit",
        )

    def _integer(self, config: Mapping[str, Any], name: str) -> Format:
        bits = _first(config, "bits", "w_bit")
        if isinstance(bits, bool) or not isinstance(bits, int) or bits not in INTEGER_BITS:
            raise self.wrong(f"{name} with bits = {bits!r:.40} is not known")
        zeros = config.get("zero_point", name == "awq")
        return grouped(
            bits, self._group(config, "group_size", "q_group_size"), symmetric=bool(config.get("sym", not zeros))
        )

    def _exceptions(self, config: Mapping[str, Any], name: str) -> list[Rule]:
        """GPTQModel's `dynamic`: `-:` before an expression leaves its modules alone, else what it says goes first."""
        said = config.get("dynamic") or {}
        if not isinstance(said, Mapping):
            raise self.wrong(f"{name}: dynamic = {str(said)[:40]!r} is no table of modules")
        rules = []
        for key, changes in said.items():
            found = Rule(
                self._names({"dynamic": [f"re:{str(key).removeprefix('-:').removeprefix('+:')}"]}, "dynamic"), None
            )
            if not str(key).startswith("-:"):
                own = self._integer({**config, **(changes if isinstance(changes, Mapping) else {})}, name)
                found = msgspec.structs.replace(found, format=own)
            rules.append(found)
        return rules

    def compressed_tensors(self, config: Mapping[str, Any]) -> Scheme:
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping) or not groups:
            raise self.wrong("compressed-tensors without config_groups")
        sparsity = config.get("sparsity_config")
        for said in (config, sparsity if isinstance(sparsity, Mapping) else {}):
            if any(word in str(said.get("format") or "") for word in SPARSE_FORMATS):
                raise self.wrong(f"weights kept sparse ({str(said['format'])[:40]}) are not in the formulas")
        rules = [Rule(self._names(config, "ignore"), None)]
        default: Format | None = None
        for group in groups.values():
            weights = group.get("weights", "") if isinstance(group, Mapping) else ""
            if weights is None:
                continue  # of activations or KV only
            if not isinstance(weights, Mapping):
                raise self.wrong("a config group of compressed-tensors does not say what its weights are")
            chosen = self._weights(weights)
            targets = self._names(group, "targets")
            if ANY_LINEAR in targets or not targets:
                default = chosen
            named = tuple(target for target in targets if target != ANY_LINEAR)
            if named:
                rules.append(Rule(named, chosen))
        name = " + ".join(
            sorted({rule.format.name for rule in rules if rule.format} | ({default.name} if default else set()))
        )
        return Scheme(
            base=self.base,
            default=default,
            roles=_WITH_HEAD,
            rules=tuple(rules),
            kv=self._kv(config.get("kv_cache_scheme")),
            name=name or None,
        )

    def _weights(self, weights: Mapping[str, Any]) -> Format:
        bits, kind = weights.get("num_bits"), str(weights.get("type", "int")).lower()
        group = self._group(weights, "group_size")
        whole = isinstance(bits, int) and not isinstance(bits, bool)
        if kind == "float" and whole and bits == 8:
            if str(weights.get("strategy")) == "block":
                return self._block(weights, "block_structure") or FORMATS["fp8_block"]
            return FORMATS["fp8"] if group is None else FORMATS["mxfp8"] if group == MX else _eight(group)
        if kind == "float" and whole and bits == 4:
            if group not in (NV, MX):
                raise self.wrong(f"4 bit floats without a group size of {NV} or {MX} are not known")
            return FORMATS["mxfp4" if group == MX else "nvfp4"]
        if kind == "int" and isinstance(bits, int) and whole and bits in INTEGER_BITS:
            return grouped(bits, group, symmetric=bool(weights.get("symmetric", True)))
        raise self.wrong(f"weights of {bits!r:.40} bits of type {kind[:20]!r} are not known")

    def modelopt(self, config: Mapping[str, Any]) -> Scheme:
        """Both places and both spellings: `exclude_modules` or `ignore`, `kv_cache_quant_algo` or a scheme."""
        rules = [Rule(self._names(config, "exclude_modules", "ignore"), None)]
        layers = config.get("quantized_layers")
        default: Format | None
        name: str | None
        if isinstance(layers, Mapping) and layers:
            by_format: dict[Format, list[str]] = {}
            for module, said in layers.items():
                found = self._algo(said if isinstance(said, Mapping) else {"quant_algo": said})
                by_format.setdefault(found, []).append(str(module))
            rules += [Rule(tuple(modules), found) for found, modules in by_format.items()]
            default, name = None, " + ".join(sorted(found.name for found in by_format))
        elif config.get("quant_algo") is None and config.get("kv_cache_quant_algo"):
            default = name = None  # the KV cache only
        else:
            default = self._algo(config)
            name = default.name
        kv = self._kv(config.get("kv_cache_scheme")) or self._kv(config.get("kv_cache_quant_algo"))
        return Scheme(base=self.base, default=default, roles=LINEAR, rules=tuple(rules), kv=kv, name=name)

    def _algo(self, said: Mapping[str, Any]) -> Format:
        word = said.get("quant_algo")
        known = MODELOPT.get(str(word).upper())
        if known is None:
            raise self.wrong(f"modelopt's quant_algo {str(word)[:40]!r} is not known")
        group = self._group(said, "group_size")
        if known == "int4" and group is not None:
            return grouped(4, group, symmetric=not said.get("has_zero_point"))
        if known.endswith("nvfp4") and group not in (None, NV):
            return msgspec.structs.replace(FORMATS[known], bytes_per_weight=0.5 + 1 / group)
        return FORMATS[known]

    def _kv(self, said: object) -> str | None:
        """What is not known is its own word: a KV format that is given goes before it, else it is refused by name."""
        if isinstance(said, Mapping):
            bits = said.get("num_bits")
            word = ("fp" if str(said.get("type", "float")) == "float" else "int") + str(bits)[:20]
            return word + PER_TOKEN_HEAD if said.get("strategy") == "token" else word
        word = str(said or "").lower()[:40]
        return "fp8" if word.startswith("fp8") else "fp4" if word == "nvfp4" else word or None

    def _names(self, config: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
        """Patterns of the first key that is there. Raises DataError: one that is left out would move bytes unseen."""
        for key in keys:
            found = config.get(key)
            if found is None:
                continue
            names = [found] if isinstance(found, str) else found
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise self.wrong(f"{key} = {str(found)[:40]!r} is no list of names")
            for name in names:
                if name.startswith("re:") and expression(name[3:]) is None:
                    raise self.wrong(f"{key}: {name[:80]!r} is no regular expression, or could take for ever")
            return tuple(names)
        return ()

    def _group(self, config: Mapping[str, Any], *keys: str) -> int | None:
        """Weights that share a scale; None (also -1) = a whole channel does."""
        value = _first(config, *keys)
        if value is None or (value == -1 and isinstance(value, int)):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= GROUP_MAX:
            raise self.wrong(f"group_size = {str(value)[:40]!r} can't be")
        return value

    def _block(self, config: Mapping[str, Any], key: str) -> Format | None:
        """FP8 with a scale of 4 bytes a block."""
        block = config.get(key)
        if block is None:
            return None
        sides = block if isinstance(block, list) else []
        if len(sides) != 2 or not all(type(side) is int and 0 < side <= GROUP_MAX for side in sides):
            raise self.wrong(f"{key} = {str(block)[:40]!r} can't be")
        return Format("fp8_block", 1.0 + 4 / (sides[0] * sides[1]), "fp8")


def _first(config: Mapping[str, Any], *keys: str) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _eight(group: int) -> Format:
    return Format(f"fp8_g{group}", 1.0 + 2 / group, "fp8")
