"""A llama model of random weights in a GGUF file of 17 MB, so that llama.cpp's own server can be measured anywhere.

python tests/support/tiny_gguf.py model.gguf          # needs the package gguf
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

VOCABULARY = 32_000
"""Above every token id that synthetic prompts are made of."""
WIDTH, HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 128, 8192
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Token types, llama.h."""


def pieces() -> tuple[list[bytes], list[int]]:
    """A vocabulary in SentencePiece's form: special tokens, bytes, letters, and made-up words for the rest."""
    texts = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts += [letter.encode() for letter in (*letters, "▁")]
    number = 0
    while len(texts) < VOCABULARY:
        word, rest = "", number
        for _ in range(4):
            rest, at = divmod(rest, len(letters))
            word += letters[at]
        texts.append(f"▁{word}".encode())
        number += 1
    return texts, types + [NORMAL] * (VOCABULARY - len(types))


def write(path: Path, seed: int = 1) -> None:
    """Raises ImportError without the package gguf."""
    import numpy as np

    gguf = import_module("gguf")  # no dependency of ours, nor of the type checker
    source = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return (source.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    texts, types = pieces()
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores([-float(number) for number in range(VOCABULARY)])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", weights(VOCABULARY, WIDTH))
    writer.add_tensor("output.weight", weights(VOCABULARY, WIDTH))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights(WIDTH, WIDTH))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights(INNER, WIDTH))
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", weights(WIDTH, INNER))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
