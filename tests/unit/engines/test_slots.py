import torch
from hypothesis import given
from hypothesis import strategies as st

from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.recurrent_states import State
from training_gym.engines.local.slots import SlotTable, common_prefix


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_common_prefix_against_a_loop(one, other):
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    assert common_prefix(one, other) == length


class Rows:
    """A table whose cache holds the token itself, so that every move can be checked."""

    def __init__(self, num_rows):
        self.table = SlotTable(SlotCache(num_rows))
        self.table.cache.reserve(16)

    def fill(self, row):
        slot = self.table.slots[row]
        values = torch.tensor(slot.tokens, dtype=torch.float32).view(1, -1, 1)
        self.table.cache.write(0, row, 0, values, values)

    def check(self):
        for row, slot in enumerate(self.table.slots):
            if slot.tokens:
                keys, values = self.table.cache.read(0, row, len(slot.tokens))
                assert keys.flatten().tolist() == slot.tokens
                assert values.flatten().tolist() == slot.tokens


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("admit"), st.lists(st.integers(1, 2), min_size=1, max_size=8)),
            st.tuples(st.just("retire"), st.integers(0, 3)),
        ),
        max_size=30,
    )
)
def test_rows_hold_what_they_say_whatever_happens(actions):
    rows = Rows(4)
    table = rows.table
    for action, value in actions:
        if action == "admit" and table.num_active < len(table.slots):
            best = max(common_prefix(slot.tokens, value) for slot in table.slots)
            row, held = table.admit(object(), value)
            assert row == table.num_active - 1
            assert held == min(best, len(value) - 1)
            rows.check()
            table.slots[row].tokens = list(value)
            rows.fill(row)
        elif action == "retire" and value < table.num_active:
            table.retire(value)
        rows.check()
        assert all(slot.owner for slot in table.slots[: table.num_active])
        assert not any(slot.owner for slot in table.slots[table.num_active :])


def test_forgetting_keeps_nothing_warm():
    rows = Rows(2)
    rows.table.admit("a", [1, 2, 3])
    rows.table.slots[0].tokens = [1, 2, 3]
    rows.fill(0)
    rows.table.retire(0)
    rows.table.forget()
    assert rows.table.best_prefix([1, 2, 3]) == (-1, 0)
    assert rows.table.cache.num_bytes == 0


class StatefulRows:
    """A table whose states spell the tokens they stand behind."""

    def __init__(self, num_rows):
        self.table = SlotTable(SlotCache(num_rows), stateful=True)

    def feed(self, row, tokens):
        slot = self.table.slots[row]
        slot.tokens = [*slot.tokens, *tokens]
        spelled = spell(slot.tokens)
        self.table.cache.keep_states(
            0, [row], State(spelled.view(1, 1, 1), spelled.view(1, 1, 1, 1))
        )

    def check(self, row):
        slot = self.table.slots[row]
        if slot.tokens:
            state = self.table.cache.states(0, [row], [len(slot.tokens)])
            assert [part.item() for part in state] == [spell(slot.tokens).item()] * 2


def spell(tokens):
    return torch.tensor(float(int("0" + "".join(map(str, tokens)))), dtype=torch.float64)


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("admit"),
                st.lists(st.integers(1, 2), min_size=1, max_size=6),
                st.integers(0, 2),
            ),
            st.tuples(st.just("retire"), st.integers(0, 2), st.just(0)),
        ),
        max_size=30,
    )
)
def test_states_stand_behind_the_tokens_of_their_row(actions):
    rows = StatefulRows(3)
    table = rows.table
    for action, value, answered in actions:
        if action == "admit" and table.num_active < 3:
            row, held = table.admit(object(), value)
            assert table.slots[row].tokens == value[:held]
            rows.check(row)
            if value[held:-1]:
                rows.feed(row, value[held:-1])
            table.mark(row)
            for token in [value[-1], 1, 2][: 1 + answered]:
                rows.feed(row, [token])
        elif action == "retire" and value < table.num_active:
            table.retire(value)
        for row in range(3):
            rows.check(row)


def test_of_a_stateful_row_all_or_its_prompt_is_reused():
    rows = StatefulRows(3)
    row, _ = rows.table.admit("a", [1, 2, 3, 4])
    rows.feed(row, [1, 2, 3])
    rows.table.mark(row)
    rows.feed(row, [4, 5])
    reusable = [
        rows.table.best_prefix(tokens)[1]
        for tokens in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2, 9], [1, 2, 3])
    ]
    assert reusable == [5, 3, 3, 0, 0]
