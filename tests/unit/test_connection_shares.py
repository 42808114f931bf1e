"""Which connection gives way to a further one."""

from __future__ import annotations

from tenuto.kernel.connection_shares import IdleConnection, gives_way, holder


def test_a_flood_is_in_its_own_way() -> None:
    flood = [IdleConnection("10.0.0.1", False, float(at)) for at in (5, 3, 4)]
    others = [IdleConnection("10.0.0.2", False, 1.0), IdleConnection("10.0.0.3", True, 0.0)]
    assert gives_way([*others, *flood]) == 3, "the oldest of the address that holds the most"


def test_what_never_asked_goes_before_what_is_kept_for_a_next_request() -> None:
    assert gives_way([IdleConnection("a", True, 1.0), IdleConnection("a", False, 9.0), IdleConnection("a", True, 2.0)]) == 1
    assert gives_way([IdleConnection("a", True, 2.0), IdleConnection("a", True, 1.0)]) == 1


def test_a_flood_that_asks_gets_nothing_before_a_newcomer_of_another_address() -> None:
    assert gives_way([IdleConnection("b", False, 0.0), *(IdleConnection("a", True, float(at)) for at in range(1, 3))]) == 1


def test_where_all_are_busy_none_gives_way() -> None:
    assert gives_way([]) is None


def test_whose_a_connection_is() -> None:
    assert holder("10.0.0.1") == holder("::ffff:10.0.0.1") == "10.0.0.1"
    assert holder("2001:db8::1") == holder("2001:db8::ffff:2") != holder("2001:db8:0:1::1")
    assert holder("fe80::1%eth0") == "fe80::"
    assert holder("") == ""
