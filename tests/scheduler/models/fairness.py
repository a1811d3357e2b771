"""What fair means, for any two that share by weight."""

from __future__ import annotations

from collections import Counter
from itertools import combinations


def check_shares(served: list[str], weight: dict[str, int]) -> None:
    """Over any stretch, two names' grants per weight differ by at most 1/weight of the one plus 1/weight of the other:
    the bound of start-time fair queueing for calls that all cost the same."""
    for begin in range(len(served)):
        counts: Counter[str] = Counter()
        for name in served[begin:]:
            counts[name] += 1
            for one, other in combinations(weight, 2):
                # In whole numbers: |n1/w1 - n2/w2| <= 1/w1 + 1/w2.
                unfair = abs(counts[one] * weight[other] - counts[other] * weight[one])
                assert unfair <= weight[one] + weight[other], (one, other, counts)
