"""Sizes: GB is 10^9, GiB is 2^30, and what is neither is refused with what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.sizes import format_count, format_rate, format_seconds, format_size, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GB", 16 * 10**9),
        ("16GiB", 16 * 2**30),
        ("512MiB", 512 * 2**20),
        ("1.5 gb", 1_500_000_000),
        (" 2 kB ", 2000),
        ("1KiB", 1024),
        ("3TB", 3 * 10**12),
        ("1tib", 2**40),
        ("12", 12),
        ("12b", 12),
        (12, 12),
        ("0.1GB", 100_000_000),
    ],
)
def test_a_size_is_read_exactly(text, size):
    assert parse_size(text) == size


def test_a_percentage_is_of_what_it_is_told():
    assert parse_size("50%", whole=1000) == 500
    assert parse_size(" 12.5 % ", whole=1000) == 125
    assert parse_size("100%", whole=7) == 7


@pytest.mark.parametrize("text", ["", "GB", "16 G", "16GBps", "-1GB", "1e3MB", "1,000", "½GB", "16GB 5MB", "١٢", "nan"])
def test_junk_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match=r"is not a size: write 16GB \(10\^9\), 16GiB \(2\^30\), 512MB or 50%"):
        parse_size(text)


@pytest.mark.parametrize("value", [True, 1.5, None, [1]])
def test_what_is_not_a_text_or_a_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="is not a size: write 16GB, 512MiB or a number of bytes"):
        parse_size(value)


@pytest.mark.parametrize("text", ["0", 0, -5, "0GB", "0%", "0.1"])
def test_nothing_is_not_a_size(text):
    with pytest.raises(ValueError, match="must be more than zero"):
        parse_size(text, whole=100)


def test_a_percentage_needs_a_whole_and_ends_at_a_hundred():
    with pytest.raises(ValueError, match="a percentage is not allowed here"):
        parse_size("50%")
    with pytest.raises(ValueError, match="more than 100%"):
        parse_size("101%", whole=1000)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1500, "1.5 kB"),
        (1_500_000_000, "1.5 GB"),
        (123_456_789, "123 MB"),
        (99_999_999, "100 MB"),
        (999_999_999, "1 GB"),
        (12_345_000_000_000, "12.3 TB"),
    ],
)
def test_a_size_is_shown_with_three_digits(size, text):
    assert format_size(size) == text


@given(st.integers(1, 10**15))
def test_a_shown_size_is_within_half_a_percent_when_read_again(size):
    assert abs(parse_size(format_size(size)) - size) <= 0.00501 * size


def test_counts_and_seconds_are_shown_in_words():
    assert format_count(1234567) == "1,234,567"
    assert [format_seconds(value) for value in (0.05, 99.9, 100, 3599.6, 3725)] == [
        "0.1 s",
        "99.9 s",
        "1 min 40 s",
        "1 h 00 min",
        "1 h 02 min",
    ]


@pytest.mark.parametrize(
    ("text", "rate", "words"),
    [
        ("10Gbit", 1_250_000_000, "10 Gbit/s"),
        ("100 Mbit/s", 12_500_000, "100 Mbit/s"),
        ("1.25GB", 1_250_000_000, "10 Gbit/s"),
        ("8bit", 1, "8 bit/s"),
    ],
)
def test_a_throughput_is_read_in_bits_or_bytes_and_told_in_bits(text, rate, words):
    assert parse_rate(text) == rate
    assert format_rate(rate) == words


@pytest.mark.parametrize("text", ["", "10", "10Gb", "10gbit", "0Gbit", "1bit", "-1Gbit", "10Gbit/min", "fast"])
def test_what_is_no_throughput_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match=r"10Gbit, 100Mbit or 1\.25GB, all per second"):
        parse_rate(text)
