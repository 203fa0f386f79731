"""SQLAlchemy 2: reflection, expressions and mapped classes; pandas on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pandas
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from tests.server.clients.conftest import EPSILON, numbers


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(schema="dpv")


class Customer(Base):
    __tablename__ = "customer"
    c_id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    c_country: orm.Mapped[str]
    orders: orm.Mapped[list[Order]] = orm.relationship(back_populates="customer")


class Order(Base):
    __tablename__ = "Orders"
    o_id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    o_customer: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("dpv.customer.c_id"))
    o_status: orm.Mapped[str]
    o_amount: orm.Mapped[float]
    customer: orm.Mapped[Customer] = orm.relationship(back_populates="orders")


@pytest.fixture(scope="module")
def engine(shop: Any) -> Iterator[sa.Engine]:
    url = sa.URL.create(
        "postgresql+psycopg", username="alice", database=shop.database.name,
        query={"host": str(shop.database.cluster.socket), "options": f"-c dp.epsilon={EPSILON}"},
    )  # fmt: skip
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def orders(engine: sa.Engine) -> sa.Table:
    return sa.Table("Orders", sa.MetaData(), schema="dpv", autoload_with=engine)


def test_views_are_reflected(shop: Any, engine: sa.Engine) -> None:
    with shop.costs(0):
        found = sa.inspect(engine)
        assert "dpv" in found.get_schema_names()
        assert sorted(found.get_view_names("dpv")) == ["Orders", "customer"]
        assert found.has_table("Orders", schema="dpv")
        columns = {c["name"]: c for c in found.get_columns("Orders", schema="dpv")}
        assert str(columns["o_amount"]["type"]) == "NUMERIC(10, 2)"
        assert columns["o_amount"]["comment"] == "in euros"
        assert isinstance(columns["o_day"]["type"], sa.Date)
        assert found.get_pk_constraint("Orders", schema="dpv")["constrained_columns"] == []
        for look in (
            found.get_foreign_keys,
            found.get_indexes,
            found.get_unique_constraints,
            found.get_check_constraints,
        ):
            assert look("Orders", schema="dpv") == []
        assert "what was bought" in str(found.get_table_comment("Orders", schema="dpv")["text"])
        assert "refuse_rows" in str(found.get_view_definition("Orders", schema="dpv"))
        metadata = sa.MetaData()
        metadata.reflect(engine, schema="dpv", views=True)
        assert sorted(metadata.tables) == ["dpv.Orders", "dpv.customer"]


def test_expressions_are_answered(shop: Any, engine: sa.Engine, orders: sa.Table) -> None:
    o = orders.c
    inner = sa.select(o.o_status.label("status"), o.o_amount).where(o.o_amount < 30).subquery("few")
    common = sa.select(orders).where(o.o_status.in_(["open", "sent"])).cte("some_orders")
    month = sa.func.date_trunc("month", o.o_at).label("month")
    statements = [
        sa.select(sa.func.count()).select_from(orders),
        sa.select(sa.func.count("*").label("n")).where(o.o_status == "open"),
        sa.select(inner.c.status, sa.func.count(), sa.func.sum(inner.c.o_amount)).group_by(inner.c.status).order_by(inner.c.status),
        sa.select(sa.func.count(sa.distinct(common.c.o_status))),
        sa.select(month, sa.func.avg(o.o_amount)).group_by(month).order_by(month).limit(10),
        sa.select(sa.func.sum(sa.case((o.o_amount > 10, 1), else_=0))),
        sa.select(o.o_status).distinct().order_by(o.o_status),
        sa.select(sa.func.count()).select_from(sa.select(orders).where(o.o_day.between(date(2024, 1, 10), date(2024, 2, 1))).subquery()),
    ]  # fmt: skip
    with engine.connect() as session:
        first = [session.execute(s).fetchall() for s in statements]
        assert all(first)
        with shop.costs(0):
            assert [session.execute(s).fetchall() for s in statements] == first
    assert shop.stored('select dp_count(*) from "Orders"') == [tuple(first[0][0])]


def test_mapped_classes_are_counted_and_never_loaded(shop: Any, engine: sa.Engine) -> None:
    with orm.Session(engine) as session:
        asked = [
            sa.select(sa.func.count(Order.o_id)).where(Order.o_amount > 12),
            sa.select(Customer.c_country, sa.func.count()).join(Order.customer).group_by(Customer.c_country),
            sa.select(Customer.c_country, sa.func.count(Order.o_id)).outerjoin(Customer.orders).group_by(Customer.c_country),
            sa.select(Customer.c_country, sa.func.count()).select_from(Order).outerjoin(Order.customer).group_by(Customer.c_country),
            sa.select(sa.func.count()).select_from(Order).where(Order.customer.has(Customer.c_country == "DE")),
            sa.select(sa.func.count()).select_from(Order).where(
                Order.o_customer.in_(sa.select(Customer.c_id).where(Customer.c_country == "DE"))),
        ]  # fmt: skip
        answers = [session.execute(statement).fetchall() for statement in asked]
        assert all(answers)
        # three ways to write one join, and two for another
        for same in (answers[1:4], answers[4:]):
            assert len({str(sorted(map(tuple, rows))) for rows in same}) == 1
        # legacy count() wraps the query
        assert session.query(Order).filter(Order.o_amount > 12).count() == answers[0][0][0]
        with shop.costs(0):
            for load in (
                lambda: session.get(Order, 3),
                lambda: session.scalars(sa.select(Order)).all(),
                lambda: session.scalars(sa.select(Order.o_status).limit(5)).all(),
                lambda: session.query(sa.exists().where(Order.o_id == 3)).scalar(),
            ):
                with pytest.raises(sa.exc.DBAPIError) as caught:
                    load()
                assert caught.value.orig.sqlstate == "PD010"  # type: ignore[union-attr]
                assert "SELECT count(*) FROM dpv" in str(caught.value)
                session.rollback()
            assert session.execute(sa.text("select 1")).scalar() == 1


def test_what_has_several_matches_is_refused_with_what_to_write(
    shop: Any, engine: sa.Engine
) -> None:
    with shop.costs(0), orm.Session(engine) as session:
        with pytest.raises(sa.exc.DBAPIError) as caught:
            session.scalar(
                sa.select(sa.func.count()).select_from(Customer).where(Customer.orders.any())
            )
        assert caught.value.orig.sqlstate == "PD011"  # type: ignore[union-attr]
        assert "count(DISTINCT a.id)" in str(caught.value)


def test_results_are_streamed(engine: sa.Engine, orders: sa.Table) -> None:
    asked = sa.select(orders.c.o_day, sa.func.count()).group_by(orders.c.o_day)
    with engine.connect().execution_options(stream_results=True, yield_per=10) as session:
        assert sum(len(part) for part in session.execute(asked).partitions()) == 91


def test_pandas_reads_answers(shop: Any, engine: sa.Engine) -> None:
    question = "select o_day, o_status, count(*) as n, avg(o_amount) as mean from dpv.\"Orders\" where o_day < '2024-01-08' group by 1, 2"
    with shop.costs(1):
        frame = pandas.read_sql(question, engine)
        assert list(frame.columns) == ["o_day", "o_status", "n", "mean"]
        assert len(frame) == 21
        assert frame["n"].dtype.kind == "i"
        pieces = pandas.read_sql_query(sa.text(question), engine, chunksize=4)
        again = pandas.concat(list(pieces), ignore_index=True)
        assert numbers(again.values.tolist()) == numbers(frame.values.tolist())
        dated = pandas.read_sql(question, engine, parse_dates=["o_day"], index_col="o_day")
        assert dated.index.dtype.kind == "M"
        assert dated["n"].sum() == frame["n"].sum()


def test_pandas_reads_no_table(shop: Any, engine: sa.Engine) -> None:
    with shop.costs(0):
        for read in (
            lambda: pandas.read_sql_table("Orders", engine, schema="dpv"),
            lambda: pandas.read_sql('select * from dpv."Orders"', engine),
        ):
            with pytest.raises(pandas.errors.DatabaseError) as caught:
                read()
            assert 'rows of the protected relation public."Orders" cannot be read' in str(
                caught.value
            )
            assert 'SELECT count(*) FROM dpv."Orders"' in str(caught.value)
        empty = pandas.read_sql('select * from dpv."Orders" limit 0', engine)
        assert list(empty.columns)[:3] == ["o_id", "o_customer", "o_status"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_engines_of_all_levels_ask(
    shop: Any, engine: sa.Engine, orders: sa.Table, level: Any
) -> None:
    question = sa.select(sa.func.count()).select_from(orders)
    with engine.execution_options(isolation_level=level).connect() as session:
        first = session.scalar(question)
        assert session.scalar(question) == first
