"""Objects are told apart by more than their addresses, which Python gives to one after the other."""

from __future__ import annotations

from tenuto.workers.user_state.attributes import Attributes


def test_a_list_at_the_address_of_a_replaced_one_is_not_taken_for_it() -> None:
    """Python uses the memory of a list again: the state of one process had other bytes than that of another by chance."""

    class Holder:
        def __init__(self) -> None:
            self.rates: list[float] = [0.1]
            self.others: list[list[float]] = []

    holder, plain = Holder(), Holder()
    attributes, expected = Attributes({"self": holder}), Attributes({"self": plain})
    address = id(holder.rates)
    holder.rates, plain.rates = [0.2], [0.2]
    made = [[0.3] for _ in range(1_000)]
    holder.others, plain.others = [next((item for item in made if id(item) == address), made[0])], [[0.3]]
    assert attributes.state() == expected.state()
