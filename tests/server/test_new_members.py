"""Which relations a new foreign key lets the executor read: those of one owner, once, and by the statement that makes it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.server

SET_UP = """
grant dp_owner to owner1; grant create on database {database} to owner1, mallory;
grant usage, create on schema public to owner1;
set role owner1;
create table cust (id int primary key); create table doctor (id int primary key);
grant references on cust to mallory;
select dp.protect('cust', privacy_unit => 'id');
reset role
"""


@pytest.fixture
def clinic(database: Any) -> Any:
    (name,) = database.sql("select current_database()")[0]
    database.sql(SET_UP.format(database=f'"{name}"'))
    return database


def read(database: Any) -> set[str]:
    """Return the relations that dp_executor may read, but for those of the set-up."""
    return {
        name
        for (name,) in database.sql(
            "select relname from pg_class where relkind in ('r', 'p') and oid >= 16384"
            " and relnamespace::regnamespace::text not in ('dp', 'dpv') and relname <> 'cust'"
            " and has_table_privilege('dp_executor', oid, 'select')"
        )
    }


def run(database: Any, user: str, *statements: str) -> list[tuple[str, str]]:
    """Run statements in one transaction of a user; return what is told, with hints."""
    found: list[tuple[str, str]] = []

    def keep(told: psycopg.errors.Diagnostic) -> None:
        found.append((told.message_primary or "", told.message_hint or ""))

    with database.connect(user) as session:
        session.autocommit = False
        session.add_notice_handler(keep)
        for statement in statements:
            session.execute(statement)
    return found


def test_a_stranger_on_the_way_opens_no_relation_of_others(clinic: Any) -> None:
    run(
        clinic,
        "mallory",
        "create schema m",
        "create table m.mid (id int primary key, cust int not null default 1)",
        "grant usage on schema m to owner1",
        "grant references on m.mid to owner1",
    )
    run(
        clinic,
        "owner1",
        "create table secret (mid int not null references m.mid)",
        "create table hidden (mid int not null) partition by range (mid)",
        "create table part partition of hidden for values from (0) to (9)",
    )
    clinic.sql("alter table part owner to mallory; grant usage on schema public to mallory")
    key = "foreign key (cust) references public.cust"
    told = run(clinic, "mallory", f"alter table m.mid add {key}")
    assert read(clinic) == set()
    assert all("from now on" not in message for message, _ in told)
    assert [hint for message, hint in told if "m.mid" in message] == [
        "To let it be asked about: GRANT SELECT ON m.mid TO dp_executor;"
    ]
    # nor does the owner of a part decide for the whole
    run(clinic, "mallory", "alter table part add foreign key (mid) references public.cust")
    assert read(clinic) == set()
    # nor does its owner's own key open what hangs on a relation of somebody else as well
    told = run(
        clinic,
        "owner1",
        "create table own (id int primary key, cust int not null references cust)",
        "create table both_ways (own int not null references own, mid int not null references m.mid)",
    )
    assert read(clinic) == {"own"}
    assert ("GRANT SELECT ON public.both_ways") in str(told)


def test_a_second_unit_of_another_role_keeps_members_closed(clinic: Any) -> None:
    clinic.sql(
        "create table other (id int primary key); grant references on other to owner1;"
        "select dp.protect('other', privacy_unit => 'id')"
    )
    run(
        clinic,
        "owner1",
        "create table visit (cust int references cust, other int references other)",
    )
    assert read(clinic) - {"other"} == set()


@pytest.mark.parametrize(
    "statements",
    [
        ["create table visit (cust int not null references cust)"],
        [
            "create table visit (cust int not null)",
            "alter table visit add foreign key (cust) references cust",
        ],
        ["create table visit (id int)", "alter table visit add cust int references cust"],
        ["create table visit (cust int not null references cust) partition by range (cust)"],
        ["create schema s create table s.visit (cust int not null references public.cust)"],
        ["savepoint a", "create table visit (cust int not null references cust)"],
        [
            "create table whole (cust int not null) partition by range (cust)",
            "create table rest partition of whole for values from (9) to (20)",
            "create table visit partition of whole (foreign key (cust) references cust)"
            " for values from (0) to (9)",
        ],
        [
            "create table head (id int primary key, cust int not null)",
            "create table visit (head int not null references head)",
            "alter table head add foreign key (cust) references cust",
        ],
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_the_statement_that_makes_a_key_lets_its_relations_be_read(
    clinic: Any, statements: list[str], apart: bool
) -> None:
    """What is taken back stays taken back, in the same transaction and in later ones."""
    name = (
        "s.visit" if "schema" in statements[0] else "whole" if "whole" in statements[0] else "visit"
    )
    column = "head" if "head" in statements[0] else "cust"
    whole = any("partition by" in statement for statement in statements)
    later = [
        "alter table {0} add note int",
        "alter table {0} alter {1} type bigint" if not whole else "alter table {0} add other int",
        # a partitioned table has no key that is not valid; one of a part becomes that of the whole
        "alter table {0} add constraint again foreign key ({1}) references {2} not valid"
        if not whole
        else "alter table {0} add constraint again check ({1} > 0)"
        if name == "whole"
        else "alter table {0} add constraint again foreign key ({1}) references {2}",
        "alter table {0} rename constraint again to renamed",
        "alter table {0} validate constraint renamed",
    ]
    if whole:
        later += [
            "create table later partition of {0} for values from (90) to (99)",
            "create table twin (like {0} including constraints); alter table {0} attach partition twin"
            " for values from (80) to (89)",
        ]
    told: list[str] = []
    with clinic.connect("owner1") as session:
        session.autocommit = False
        session.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for statement in statements:
            session.execute(statement)
        # a key that can be NULL, or that only a part of the relation has
        open_problem = "not null" not in " ".join(statements) or name == "whole"
        when = "once the problem told next is mended" if open_problem else "from now on"
        first, *more = [message for message in told if f"{name} belongs" in message]
        assert first.endswith(f"can be asked about {when}")
        assert [message.rpartition(", but ")[2] for message in more] == (
            ["cannot be asked about yet"] if open_problem else []
        )
        assert name.split(".")[-1] in read_in(session)
        session.execute(f"revoke select on {name} from dp_executor")
        before = read_in(session)
        if apart:
            session.commit()
            session.autocommit = True
        for statement in later:
            parent = "head" if column == "head" else "cust"
            session.execute(statement.format(name, column, parent))
            assert read_in(session) == before, statement


def read_in(session: Any) -> set[str]:
    """Return the same within a transaction."""
    found = session.execute(
        "select relname from pg_class where relkind in ('r', 'p') and oid >= 16384"
        " and has_table_privilege('dp_executor', oid, 'select')"
    )
    return {name for (name,) in found}


def test_a_key_more_opens_no_member_again(clinic: Any) -> None:
    run(
        clinic,
        "owner1",
        "create table visit (id int primary key, cust int not null references cust)",
        "create table bill (visit int not null references visit, cust int references cust)",
        "revoke select on visit, bill from dp_executor",
    )
    clinic.sql("set role owner1; select dp.protect('doctor', privacy_unit => 'id')")
    run(clinic, "owner1", "alter table visit add doctor int references doctor")
    assert read(clinic) == {"doctor"}
    # by one way new, by another one not
    run(
        clinic,
        "owner1",
        "create table head (id int primary key, cust int not null)",
        "create table line (head int not null references head, cust int not null references cust)",
        "revoke select on line from dp_executor",
        "alter table head add foreign key (cust) references cust",
    )
    assert read(clinic) == {"doctor", "head"}
