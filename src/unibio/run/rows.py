"""The rows of a table that grows while a run goes on, kept in few arrays also if they come one at a time."""

import numpy as np

from unibio.run.result import Table, joined


def length(table: Table) -> int:
    """How many rows a table has."""
    return len(table["step"]) if table else 0


def up_to(table: Table, step: int) -> Table:
    """The table, cut to the rows whose `step` is at most this one."""
    return {name: column[table["step"] <= step] for name, column in table.items()}


class Rows:
    """Tables that follow on one another; each has a column `step`, which rises.

    A run that measures after every step adds rows one at a time, and an array costs a hundred bytes beside its
    numbers. So tables of about the same length are joined: of n rows there are never more than log₂ n + 2 tables. The
    last one stays by itself, because metrics may still be added to its row.
    """

    def __init__(self, begin: Table | None = None) -> None:
        self.tables: list[Table] = [begin] if begin else []

    def __len__(self) -> int:
        return sum(map(length, self.tables))

    def add(self, table: Table) -> None:
        """Appends the rows of a table, copied, so that they keep no larger array alive."""
        if not length(table):
            return
        self.tables.append({name: np.array(values) for name, values in table.items()})
        while len(self.tables) > 2 and length(self.tables[-3]) <= length(self.tables[-2]):
            self.tables[-3:-1] = [joined(self.tables[-3:-1])]

    def cut(self, step: int) -> None:
        """Forgets the rows after this step."""
        self.tables = [kept for table in self.tables if length(kept := up_to(table, step))]

    def since(self, number: int) -> Table:
        """All rows but the first `number`, as one table."""
        late: list[Table] = []
        begin = len(self)
        for table in reversed(self.tables):
            if begin <= number:
                break
            begin -= length(table)
            skipped = max(0, number - begin)
            late.insert(0, {name: column[skipped:] for name, column in table.items()})
        return joined(late)
