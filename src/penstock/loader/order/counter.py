"""Counter: random numbers as a pure function of a key and a count, in plain integers (docs/reference/tokens.md)."""

from math import isqrt

GOLDEN = 0x9E3779B97F4A7C15
MIX, ORDER, ROW, SIZING = 1, 2, 3, 4  # what a key is for, so that no two uses share one
FEW, ROUNDS = 32, 8  # above, a network costs less than a shuffle; with 6 rounds pairs of places still stay together
_WORD = 2**64 - 1


def mix(x: int) -> int:
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _WORD
    return x ^ x >> 31


def key(*words: int) -> int:
    value = 0
    for word in words:
        value = mix(((value ^ word) + GOLDEN) & _WORD)
    return value


def segment_key(row_key: int, segment: int) -> int:
    return mix(((row_key ^ segment) + GOLDEN) & _WORD)


def draw(own: int, count: int) -> int:
    return mix((own + (count + 1) * GOLDEN) & _WORD)


def below(x: int, n: int) -> int:
    """A number in [0, n) from a draw; n is at most 2^32."""
    return ((x >> 32) * n) >> 32


def permute(x: int, n: int, own: int) -> int:
    """The place that `x` of [0, n) goes to: exactly uniform for few places, a Feistel network for many."""
    return _permute_few(x, n, own) if n <= FEW else _permute_many(x, n, own)


def _permute_few(x: int, n: int, own: int) -> int:
    """A Fisher-Yates shuffle, followed for one place: place i, from 1 on, changes with one of those up to it."""
    place, x = x, below(draw(own, x), x + 1)
    for i in range(place + 1, n):
        if below(draw(own, i), i + 1) == x:
            x = i
    return x


def _permute_many(x: int, n: int, own: int) -> int:
    """A Feistel network over the smallest whole number of powers of two that n fits in, walked until it is below n.

    Both halves are turned by addition: an exclusive or of two bits or more makes even permutations alone.
    """
    low = (n - 1).bit_length() // 2
    low_mask = (1 << low) - 1
    high = (n + low_mask) >> low
    while True:
        left, right = x >> low, x & low_mask
        for i in range(ROUNDS):
            round_key = (own + (i + 1) * GOLDEN) & _WORD
            if i % 2 == 0:
                left = (left + below(mix(round_key ^ right), high)) % high
            else:
                right = (right + mix(round_key ^ left)) & low_mask
        x = left << low | right
        if x < n:
            return x


def log_uniform(x: int, n: int) -> int:
    """A window in [1, n] from a draw: small ones as likely as large ones, by octave."""
    exponent = ((x >> 37) * log2(n)) >> 27  # 27 bits: the product stays within 64
    return min(max(exp2(exponent), 1), n)


def log2(n: int) -> int:
    """With 32 fractional bits, by squaring: no library function decides a digit. n is below 2^32."""
    whole = n.bit_length() - 1
    mantissa, result = n << (31 - whole), whole
    for _ in range(32):
        result <<= 1
        mantissa = (mantissa * mantissa) >> 31
        if mantissa >= 1 << 32:
            mantissa >>= 1
            result |= 1
    return result


def exp2(y: int) -> int:
    """floor(2^y) of a number with 32 fractional bits."""
    result = 1 << 31
    for i, root in enumerate(ROOTS, start=1):
        if y >> (32 - i) & 1:
            result = (result * root) >> 31
    return (result << (y >> 32)) >> 31


def _roots() -> tuple[int, ...]:
    """floor(2^31 * 2^(2^-i)) for i from 1 to 32, by integer square roots."""
    precision, root, found = 200, 2 << 200, []
    for _ in range(32):
        root = isqrt(root << precision)
        found.append(root >> (precision - 31))
    return tuple(found)


ROOTS = _roots()
