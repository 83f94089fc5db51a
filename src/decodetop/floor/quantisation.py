"""How a checkpoint says which modules are quantised: `quantization_config` or `hf_quant_config.json` -> `Scheme`.

Never assume that an "NVFP4 model" is NVFP4 everywhere: attention and head are often left in BF16 (reference notes on
the decode floor, section 2.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from decodetop.errors import DataError
from decodetop.floor.formats import FORMATS, LINEAR, Format, Rule, Scheme, grouped
from decodetop.floor.patterns import expression

ANY_LINEAR = "Linear"
_WITH_HEAD = LINEAR | {"head", "router"}
"""modelopt and compressed-tensors quantise every linear layer that they do not exclude."""

MODELOPT = {
    "FP8": "fp8", "FP8_PB_WO": "fp8_block", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "w4a16_nvfp4", "INT4_AWQ": "int4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4",
    "INT8_SQ": "int8", "MXFP8": "mxfp8", "MXFP4": "mxfp4",
}  # fmt: skip
SUPPORTED = ("fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq")


def scheme_of(config: Mapping[str, Any] | None, separate: Mapping[str, Any] | None, base: Format, where: str) -> Scheme:
    """`separate` = the content of `hf_quant_config.json`. Raises DataError for a scheme that is not known."""
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
        block = config.get("weight_block_size")
        chosen = FORMATS["fp8"]
        if isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block):
            chosen = Format("fp8_block", 1.0 + 4 / (block[0] * block[1]), "fp8")
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
        bits, group = self._count(config, "bits", "w_bit"), self._count(config, "group_size", "q_group_size")
        if bits not in (2, 3, 4, 8):
            raise self.wrong(f"{name} with bits = {bits} is not known")
        symmetric = bool(config.get("sym", name == "gptq" and not config.get("zero_point", False)))
        chosen = grouped(bits, group, symmetric=symmetric)
        kept = self._names(config, "modules_to_not_convert")
        roles = LINEAR | {"head"} if config.get("lm_head") is True else LINEAR
        return Scheme(
            base=self.base,
            default=msgspec.structs.replace(chosen, name=f"{name}_{chosen.name}"),
            roles=roles,
            rules=(Rule(kept, None),),
            name=f"{name} {bits} bit",
        )

    def compressed_tensors(self, config: Mapping[str, Any]) -> Scheme:
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping) or not groups:
            raise self.wrong("compressed-tensors without config_groups")
        rules = [Rule(self._names(config, "ignore"), None)]
        default: Format | None = None
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, Mapping) else None
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
        group = weights.get("group_size")
        group = group if isinstance(group, int) and group > 0 else None
        if kind == "float" and bits == 8:
            return FORMATS["fp8_block"] if str(weights.get("strategy")) == "block" else FORMATS["fp8"]
        if kind == "float" and bits == 4:
            return FORMATS["mxfp4"] if group == 32 else FORMATS["nvfp4"]
        if kind == "int" and isinstance(bits, int) and bits in (2, 3, 4, 8):
            return grouped(bits, group, symmetric=bool(weights.get("symmetric", True)))
        raise self.wrong(f"weights of {bits!r} bits of type {kind[:20]!r} are not known")

    def modelopt(self, config: Mapping[str, Any]) -> Scheme:
        """Both places and both spellings: `exclude_modules` or `ignore`, `kv_cache_quant_algo` or a scheme."""
        rules = [Rule(self._names(config, "exclude_modules", "ignore"), None)]
        layers = config.get("quantized_layers")
        algo = str(config.get("quant_algo") or "")
        if isinstance(layers, Mapping) and layers:
            by_format: dict[str, list[str]] = {}
            for module, said in layers.items():
                word = said.get("quant_algo") if isinstance(said, Mapping) else said
                by_format.setdefault(self._algo(word).name, []).append(str(module))
            rules += [Rule(tuple(modules), FORMATS[name]) for name, modules in by_format.items()]
            default, name = None, " + ".join(sorted(by_format))
        else:
            default = self._algo(algo)
            name = default.name
        kv = self._kv(config.get("kv_cache_scheme")) or self._kv(config.get("kv_cache_quant_algo"))
        return Scheme(base=self.base, default=default, roles=LINEAR, rules=tuple(rules), kv=kv, name=name)

    def _algo(self, word: object) -> Format:
        known = MODELOPT.get(str(word).upper())
        if known is None:
            raise self.wrong(f"modelopt's quant_algo {str(word)[:40]!r} is not known")
        return FORMATS[known]

    def _kv(self, said: object) -> str | None:
        if isinstance(said, Mapping):
            return {8: "fp8" if str(said.get("type", "float")) == "float" else "int8"}.get(said.get("num_bits", 0))
        word = str(said or "").lower()
        return "fp8" if word.startswith("fp8") else "fp4" if word in ("nvfp4", "fp4") else None

    def _names(self, config: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
        """Patterns of the first key that is there. Raises DataError: one that is left out would move bytes unseen."""
        for key in keys:
            found = config.get(key)
            if isinstance(found, list):
                names = tuple(str(one) for one in found)
                for name in names:
                    if name.startswith("re:") and expression(name[3:]) is None:
                        raise self.wrong(f"{key}: {name[:80]!r} is no regular expression, or could take for ever")
                return names
        return ()

    def _count(self, config: Mapping[str, Any], *keys: str) -> int | None:
        for key in keys:
            value = config.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None
