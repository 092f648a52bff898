"""Tokens become measurements again; what makes no sense is refused with its place. Round trips: test_reference.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InputError
from penstock.loader.tokens.decode import decode
from penstock.loader.tokens.vocabulary import PINGS, make_vocabulary

SOURCE = [1, 11 + 10, 11, 11, 11 + 1]
DESTINATION = [3, 11 + 8, 11 + 8, 11 + 4, 11 + 4]
RTT = [8, 11 + 7, 11 + 255]
PING = [0, *SOURCE, *DESTINATION, *RTT]
NOON = 1_704_110_400  # 2024-01-01 12:00 UTC
OTHERS = make_vocabulary({"port": {"int": 2}, "protocol": {"category": ["tcp", "udp"]}, "payload": {"bytes": 4}})


def absolute(seconds: int) -> list[int]:
    return [5, *(11 + byte for byte in seconds.to_bytes(8, "big", signed=True))]


def ping(*time: int) -> list[int]:
    return [*PING, *time]


def times(tokens: list[int]) -> list:
    return [each.get("time") for each in decode(tokens)]


def test_a_ping_is_read_in_any_order_of_its_blocks():
    expected = {"source": "10.0.0.1", "destination": "8.8.4.4", "time": np.datetime64(NOON, "s"), "rtt": 2.047}
    for order in ([SOURCE, DESTINATION, absolute(NOON), RTT], [RTT, absolute(NOON), DESTINATION, SOURCE]):
        assert decode([0, *(token for block in order for token in block)]) == [expected]


def test_fields_come_in_the_order_of_the_vocabulary():
    (measurement,) = decode([0, *RTT, *DESTINATION, *SOURCE])
    assert list(measurement) == ["source", "destination", "time", "rtt"]


def test_an_ipv6_address_has_its_short_text():
    long = bytes.fromhex("20010db8000000000000000000000001")
    (measurement,) = decode([0, 2, *(11 + byte for byte in long), *DESTINATION, *RTT])
    assert measurement["source"] == "2001:db8::1"


def test_a_failed_ping_has_no_rtt():
    (measurement,) = decode([0, *SOURCE, *DESTINATION, 10])
    assert measurement["rtt"] is None


@pytest.mark.parametrize(
    ("exponent", "mantissa", "rtt"),
    [(0, 1, 0.001), (0, 2047, 2.047), (1, 1024, 2.048), (3, 1890, 15.12), (31, 2047, 2047 * 2**31 / 1000)],
)
def test_an_rtt_is_the_smallest_its_tokens_stand_for(exponent, mantissa, rtt):
    high, low = (exponent << 11 | mantissa).to_bytes(2, "big")
    (measurement,) = decode([0, *SOURCE, *DESTINATION, 8, 11 + high, 11 + low])
    assert measurement["rtt"] == rtt


def test_deltas_add_up_from_the_last_absolute_time():
    later = NOON + 2**40
    tokens = [
        *ping(*absolute(NOON)),
        *ping(6, 11 + 200),
        *ping(),
        *ping(7, 11, 11, 11 + 1, 11 + 5),
        *ping(*absolute(later)),
        *ping(6, 11),
    ]
    seconds = [NOON, NOON + 200, None, NOON + 200 + 261, later, later]
    assert times(tokens) == [None if each is None else np.datetime64(each, "s") for each in seconds]


def test_a_time_before_1970_is_read():
    assert times(ping(*absolute(-1))) == [np.datetime64("1969-12-31T23:59:59")]


def test_a_delta_with_no_absolute_time_before_it_stays_a_delta():
    first, second = decode([*ping(6, 11 + 9), *ping(7, 11, 11, 11 + 1, 11)])
    assert (first["time_delta"], second["time_delta"]) == (9, 256)
    assert "time" not in first


def test_time_does_not_go_on_into_the_next_segment():
    tokens = [*ping(*absolute(NOON)), *ping(6, 11 + 9)]
    first, second = decode(tokens, segmentation=[1] * len(ping(*absolute(NOON))) + [2] * len(ping(6, 11)))
    assert first["time"] == np.datetime64(NOON, "s")
    assert second["time_delta"] == 9


def test_a_time_past_the_last_is_the_last():
    assert times([*ping(*absolute(2**63 - 1)), *ping(6, 11 + 1)])[1] == np.datetime64(2**63 - 1, "s")


def test_padding_is_left_out_with_segmentation():
    tokens = [*PING, *PING, 0, 0, 0]
    segmentation = [1] * len(PING) + [2] * len(PING) + [0] * 3
    assert [each["segment"] for each in decode(tokens, segmentation=segmentation)] == [1, 2]


def test_padding_at_the_end_is_left_out_without_segmentation():
    assert decode([*PING, 0, 0, 0]) == decode(PING)
    assert decode([0, 0, 0]) == decode([]) == []


def test_a_batch_gives_a_list_a_row():
    batch = np.array([PING, [0] * len(PING)], np.int32)
    assert decode(batch) == [decode(PING), []]
    ((measurement,), none) = decode(batch, segmentation=np.array([[3] * len(PING), [0] * len(PING)]))
    assert measurement == {**decode(PING)[0], "segment": 3}
    assert none == []


@given(st.integers(1, len(PING) - 1))
def test_the_last_measurement_is_cut_wherever_the_row_ends(kept):
    whole, *rest = decode([*PING, *PING[:kept]])
    assert whole == decode(PING)[0]
    for cut in rest:  # a start alone cannot be told from padding
        read = {"source": "10.0.0.1"} if kept > 5 else {}
        read |= {"destination": "8.8.4.4"} if kept > 10 else {}
        assert cut == {**read, "cut": True}
    assert len(rest) == (kept > 1)


def test_a_cut_measurement_says_its_segment():
    (cut,) = decode(PING[:7], segmentation=[1] * 7)
    assert cut == {"source": "10.0.0.1", "segment": 1, "cut": True}


def test_a_measurement_without_time_is_not_cut_for_that():
    assert "cut" not in decode(PING)[0]


def test_ints_categories_and_bytes_are_read():
    base = OTHERS.byte_base
    tokens = [0, 1, base + 255, base + 254, 4, 6, base + 2, base + 104, base + 105]
    tokens += [0, 2, 5, 7]
    tokens += [0, 6, base, 3, 1, base + 1, base]
    assert decode(tokens, OTHERS) == [
        {"port": -2, "protocol": "udp", "payload": b"hi"},
        {"port": None, "protocol": None, "payload": None},
        {"port": 256, "protocol": "tcp", "payload": b""},
    ]


def test_bytes_are_cut_before_and_after_their_length():
    base = OTHERS.byte_base
    for tokens in ([6], [6, base + 2], [6, base + 2, base + 104]):
        assert decode([0, 1, base, base, 3, *tokens], OTHERS) == [{"port": 0, "protocol": "tcp", "cut": True}]


@pytest.mark.parametrize(
    ("tokens", "position", "token", "expected"),
    [
        ([1, 11, 11, 11, 11], 0, 1, "the start of a measurement"),
        ([*PING, 11], 14, 11, "a marker of a field"),
        ([0, 9], 1, 9, "a marker of a field"),
        ([0, *SOURCE, *SOURCE], 6, 1, "a field other than source"),
        ([0, *SOURCE, 2], 6, 2, "a field other than source"),
        ([0, 1, 11, 11, 0], 4, 0, "byte 3 of 4 of source"),
        ([0, 1, 11, 267], 3, 267, "byte 2 of 4 of source"),
        ([0, 1, 11, -1], 3, -1, "byte 2 of 4 of source"),
        ([0, *SOURCE, *RTT, *PING], 9, 0, "the marker of destination"),
        ([0, *PING], 1, 0, "the marker of source or destination or rtt"),
        ([0, *SOURCE, 0, 0], 6, 0, "the marker of destination or rtt"),
    ],
)
def test_tokens_that_make_no_sense_are_named(tokens, position, token, expected):
    with pytest.raises(InputError) as refused:
        decode(tokens)
    assert f"token {token} at position {position} " in refused.value.what
    assert expected in refused.value.what
    assert refused.value.next_step


def test_a_length_beyond_what_the_field_holds_is_named():
    with pytest.raises(InputError, match="the length of payload, at most 4"):
        decode([0, 6, OTHERS.byte_base + 5], OTHERS)


def test_a_measurement_that_ends_before_its_segment_does_is_named():
    with pytest.raises(InputError, match=r"position 6 .* the marker of destination or rtt"):
        decode([0, *SOURCE, *PING], segmentation=[1] * 6 + [2] * len(PING))


def test_a_refusal_in_a_batch_names_the_row():
    with pytest.raises(InputError, match="position 0") as refused:
        decode([PING, [9] * len(PING)])
    assert refused.value.notes == ["in row 1"]


@pytest.mark.parametrize(("shape", "other"), [((2, 3, 4), None), ((3,), (4,)), ((2, 3), (3, 2)), ((), None)])
def test_shapes_that_are_no_row_and_no_batch_are_refused(shape, other):
    with pytest.raises(InputError, match="neither a row nor a batch"):
        decode(np.zeros(shape, int), segmentation=None if other is None else np.zeros(other, int))


@given(st.lists(st.integers(-2, 300), max_size=40))
def test_any_tokens_are_read_or_refused(tokens):
    try:
        decode(tokens, PINGS)
    except InputError as error:
        assert "position" in error.what
