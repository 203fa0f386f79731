"""Foreign keys remove joins only where a join compares as they do."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("parent", "child", "removed"),
    [
        ("char(10)", "text", False),
        ("char(10)", "char(4)", True),
        ("float8", "numeric", False),
        ("bigint", "integer", True),
        ("text", "varchar(9)", True),
        ("numeric", "numeric(4,1)", True),
        ("numeric", "integer", False),
    ],
)
def test_a_join_is_removed_where_the_key_compares_as_it_does(
    database: Any, parent: str, child: str, removed: bool
) -> None:
    values = "'1', '1  '" if child == "text" else "'1', '1'"
    database.sql(
        f"create table p (k {parent} primary key); insert into p values ('1');"
        f"create table c (k {child} references p); insert into c select unnest(array[{values}])::{child};"
        "select dp.protect('p'), dp.protect('c'), dp.grant_budget('postgres', 1000)"
    )
    question = "select dp_count(*) from c join p on c.k = p.k"
    with database.connect() as session:
        told = dict(session.execute("select * from dp.explain(%s)", [question]).fetchall())
        assert ("redundant joins" in told) == removed
        session.execute("set dp.epsilon = 100")
        ((found,),) = session.execute(question).fetchall()
        ((expected,),) = session.execute(question.replace("dp_count", "count")).fetchall()
    if removed:  # the sensitivity is public: noise other than 0 has a probability below 1e-40
        assert found == expected
