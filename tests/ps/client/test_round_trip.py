"""When a request counts as lost: not before replies usually arrive."""

import pytest

from fleetx.ps.client.round_trip import RoundTrip


def test_before_the_first_reply_nothing_is_known():
    assert RoundTrip().unusual == 0


def test_replies_that_take_equally_long_leave_little_doubt():
    trip = RoundTrip()
    for _ in range(100):
        trip.add(2.0)
    assert trip.unusual == pytest.approx(2.0, rel=0.01)


def test_a_server_that_gets_slower_is_given_more_time():
    trip = RoundTrip()
    for _ in range(20):
        trip.add(0.01)
    for _ in range(20):
        trip.add(1.5)
    assert trip.unusual > 1.5


def test_one_late_reply_is_forgotten():
    trip = RoundTrip()
    trip.add(0.01)
    trip.add(9.0)
    for _ in range(100):
        trip.add(0.01)
    assert trip.unusual < 0.1
