"""Pairs of numbers with the answers that every metric must give for them, whatever holds them."""

from math import inf, nan

import pytest

ZEROS = [0.0, 0.0, 0.0]

# expected, actual, PCC, largest error, close by default
CASES = {
    "equal": ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], 1.0, 0.0, True),
    "opposite": ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0, 2.0, False),
    "scaled": ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 1.0, 3.0, False),
    "unrelated": ([1.0, 2.0, 1.0, 2.0], [1.0, 1.0, 2.0, 2.0], 0.0, 1.0, False),
    "known": ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], 0.9819805060619659, 1.0, False),
    "same constant": ([7.0, 7.0], [7.0, 7.0], 1.0, 0.0, True),
    "zeros": (ZEROS, ZEROS, 1.0, 0.0, True),
    "other constant": ([2.0, 2.0], [1.0, 1.0], 0.5, 1.0, False),
    "constant of other sign": ([2.0, 2.0], [-2.0, -2.0], 0.0, 4.0, False),
    "zeros expected": (ZEROS, [0.0, 1e-12, 0.0], 0.0, 1e-12, True),
    "zeros found": ([1.0, 2.0, 3.0], ZEROS, 0.0, 3.0, False),
    "rounded constant": ([1.0, 1.0], [1.0, 1.002], 0.9985871992, 0.002, False),
    "a constant near what varies": ([1.0, 1.001], [1.0, 1.0], 0.0, 0.001, False),
    "same number": (3.0, 3.0, 1.0, 0.0, True),
    "other number": (4.0, 3.0, 0.75, 1.0, False),
    "empty": ([], [], 1.0, 0.0, True),
    "empty rows": ([[], []], [[], []], 1.0, 0.0, True),
    "NaN for NaN": ([1.0, nan, 3.0, 4.0], [1.0, nan, 3.0, 4.0], 1.0, 0.0, False),
    "only NaN": ([nan, nan], [nan, nan], 1.0, 0.0, False),
    "NaN elsewhere": ([1.0, nan, 3.0], [nan, 1.0, 3.0], 0.0, inf, False),
    "NaN for a number": ([1.0, 2.0, 3.0], [1.0, 2.0, nan], 0.0, inf, False),
    "NaN for infinity": ([1.0, 2.0, inf], [1.0, 2.0, nan], 0.0, inf, False),
    "infinity for itself": ([1.0, inf, -inf], [1.0, inf, -inf], 1.0, 0.0, True),
    "infinity of other sign": ([1.0, 2.0, inf], [1.0, 2.0, -inf], 0.0, inf, False),
    "the rest beside infinity": ([1.0, inf, 2.0], [2.0, inf, 1.0], -1.0, 1.0, False),
    "whole numbers": ([1, 2, 3], [1, 2, 4], 0.9819805060619659, 1.0, False),
    "truth values": ([True, False, True], [True, False, False], 0.5, 1.0, False),
    "same truth": ([True, True], [True, True], 1.0, 0.0, True),
    "wrong truth": ([True, True], [False, False], 0.0, 1.0, False),
    "complex": ([1 + 2j, 3 - 1j], [1 + 2j, 3 - 1j], 1.0, 0.0, True),
    "other complex": ([1 + 2j, 3 - 1j], [1 + 2j, 6 + 3j], 0.4517539515, 5.0, False),
    "real for complex": ([1 + 0j, 2 + 0j], [1.0, 2.0], 1.0, 0.0, True),
    "huge": ([1e308, -1e308, 1e307], [1e308, -1e308, 1e307 * 1.1], 0.9999834553, 1e306, False),
    "tiny": ([1e-320, 0.0, 3e-320], [1e-320, 0.0, 3e-320], 1.0, 0.0, True),
    "tiny and opposite": ([1e-320, 2e-320], [2e-320, 1e-320], -1.0, 1e-320, True),
    "far from zero": ([1e15, 1e15 + 1, 1e15 + 2], [1e15 + 2, 1e15 + 1, 1e15], -1.0, 2.0, True),
    "neighbours": ([1.0, 1.0 + 2**-52], [1.0 + 2**-52, 1.0], -1.0, 2**-52, True),
}

every_case = pytest.mark.parametrize(
    ("expected", "actual", "pcc", "error", "close"), CASES.values(), ids=CASES.keys()
)
