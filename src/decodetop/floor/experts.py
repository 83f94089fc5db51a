"""How many distinct experts of a layer a step reads. Pure.

Uniform independent routing maximises the expected number of distinct experts, and real routing is skewed: the formula
is no lower bound (reference notes on the decode floor, section 2.4).
"""

from __future__ import annotations

import math

from decodetop.floor.reading import Experts


def hit(experts: int, top_k: int, tokens: int, ranks: int = 1) -> Experts:
    """Of the rank that reads most when whole experts are spread over `ranks`.

    low = the top-k of one token, however many tokens; high = no two tokens share an expert.
    """
    share = 1 - (1 - top_k / experts) ** tokens
    per_rank = math.ceil(experts / ranks)
    low = float(math.ceil(top_k / ranks))
    expected = experts * share if ranks == 1 else _largest(per_rank, share, ranks)
    high = float(min(tokens * top_k, experts, per_rank))
    return Experts(low=low, expected=min(max(expected, low), high), high=high)


def _largest(per_rank: int, share: float, ranks: int) -> float:
    """Mean of the largest of `ranks` binomial counts; within 4 % of a Monte-Carlo run of the real draw."""
    if share >= 1:
        return float(per_rank)
    below, mean = 0.0, 0.0
    yes, no, ways = math.log(share), math.log1p(-share), math.lgamma(per_rank + 1)
    for count in range(per_rank):
        # by logarithms: the number of ways is beyond a float from 1,030 experts on
        chosen = ways - math.lgamma(count + 1) - math.lgamma(per_rank - count + 1)
        below += math.exp(chosen + count * yes + (per_rank - count) * no)
        mean += 1 - min(below, 1.0) ** ranks
    return mean
