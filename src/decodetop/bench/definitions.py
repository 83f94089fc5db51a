"""What each figure of a run is, in one sentence: printed with the figures, and the table of docs/benchmark.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEFINITIONS: Mapping[str, str] = MappingProxyType(
    {
        "ttft_ms": "from the client's write of the request to the first chunk that carries a token",
        "icl_ms": "gap between one token-carrying chunk and the next, as it came",
        "itl_ms": "a chunk's gap divided by the tokens it carried, once for each of them; only where the stream says "
        "how many (continuous usage, native counts), else null",
        "tpot_ms": "(last token - first token) / (output tokens - 1), tokens as the server counted them",
        "e2e_ms": "from the write to the last token",
        "output_tok_s": "output tokens / (first write to last token); with --duration-s over that time, without the "
        "drain",
        "request_s": "requests that succeeded / the same window",
        "goodput_request_s": "requests/s within every bound of --slo (ttft, tpot, e2e in ms)",
        "concurrency": "requests under way at a time, on average over the same window: what was achieved of --streams",
        "accept_length": "output tokens / verify steps: native counts, else the server's counters over the run",
        "accept_per_position": "drafts accepted at each position / drafts, by the server's counters over the run",
        "send_delay_ms": "from when the request was due (the stream was free, or its planned arrival) to its write; "
        "never inside TTFT",
        "loop_lag_ms": "how late the load process's loop called back what was due, every 10 ms",
        "cpu_percent": "of one core, of the busiest load process",
    }
)
