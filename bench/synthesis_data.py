"""Databases that ``bench.synthesis`` copies: tables, keys, privacy units and declared domains."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.data import install, load_tpch, make

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Data:
    """One database.

    Values beyond a declared range are moved to its ends when tables are made, as an owner would: a
    row with a value that is not declared counts nowhere.

    Attributes
    ----------
    relations : tuple of str
        What is copied, parents first.
    d_max : dict of (str, int)
        Rows of each that one privacy unit may have.
    tables : str
        SQL that makes the tables of ``raw_...``, which hold the files as texts.
    declare : str
        Units, public relations and domains.
    files : dict of (str, str)
        Staging tables and the files they are read from.
    delimiter : str
    bins : int
    delta : float
    """

    relations: tuple[str, ...]
    d_max: dict[str, int]
    tables: str
    declare: str
    files: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    bins: int = 8
    delta: float = 1e-6
    placeholders: bool = True


def prepare(dsn: str, name: str, found: Data, folder: Path, scale: float) -> str:
    """Make the database unless it is complete, declare, let alice spend; return where it is."""
    database = f"bench_synthesis_{name}"
    if name == "tpch":
        database += f"_sf{scale:g}".replace(".", "_")
    where = make_conninfo(dsn, dbname=database)

    def load() -> None:
        if name == "tpch":
            load_tpch(where, scale, indexed=False)
            return
        with psycopg.connect(where) as connection:
            for staging, file in found.files.items():
                _stage(connection, staging, folder / file, found.delimiter)
            connection.execute(found.tables)
            for staging in found.files:
                connection.execute(sql.SQL("drop table {}").format(sql.Identifier(staging)))
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("vacuum analyze")

    make(dsn, database, load)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("drop schema if exists synthetic cascade")
    install(where, found.declare)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("select dp.grant_budget('alice', epsilon => 100000, delta => 0.5)")
        connection.execute(
            "select dp.set_root_cap(format('%I.%I', schema_name, relation_name)::regclass,"
            " null, 0.5) from dp.relations where kind = 'protected' and declared_by is not null"
        )
        connection.execute(f"grant create on database {database} to alice")
        connection.execute("grant select, references on all tables in schema public to alice")
        protected = connection.execute(
            "select format('%I.%I', schema_name, relation_name) from dp.relations"
            " where kind = 'protected'"
        ).fetchall()
        for (relation,) in protected:
            connection.execute(f"revoke all on {relation} from alice")
    return where


def _stage(connection: Connection, name: str, path: Path, delimiter: str) -> None:
    """Copy a file with a header into a table of texts."""
    read = path.read_bytes()
    text = (gzip.decompress(read) if path.suffix == ".gz" else read).decode()
    header = next(csv.reader(io.StringIO(text), delimiter=delimiter))
    columns = sql.SQL(", ").join(
        sql.SQL("{} text").format(sql.Identifier(c.lower())) for c in header
    )
    connection.execute(sql.SQL("create table {} ({})").format(sql.Identifier(name), columns))
    copy = sql.SQL("copy {} from stdin (format csv, header, delimiter {})")
    with connection.cursor().copy(
        copy.format(sql.Identifier(name), sql.Literal(delimiter))
    ) as sink:
        sink.write(text)


def _domains(relation: str, **columns: str) -> str:
    return "".join(
        f"select dp.set_domain('{relation}', '{name}', {domain});"
        for name, domain in columns.items()
    )


def _list(source: str, column: str) -> str:
    """Write the values that a column has: what an owner would write down."""
    return f"(select array_agg(distinct {column} order by {column}) from {source})"


BERKA = Data(
    ("district", "account", "client", "disp", "card", "loan", "orders"),
    {"client": 2, "disp": 2, "card": 2, "loan": 1, "orders": 5},
    """
    create table district as select a1::int as district_id, a3 as region, a9::int as cities,
        a8::int as large_towns, a11::int / 500 * 500 as salary from raw_district;
    alter table district add primary key (district_id);
    create table account as select account_id::int, district_id::int, frequency,
        to_date('19' || date, 'YYYYMMDD') as opened from raw_account;
    alter table account add primary key (account_id), alter district_id set not null,
        alter frequency set not null, alter opened set not null,
        add foreign key (district_id) references district;
    create table client as select client_id::int, district_id::int,
        case when substr(birth_number, 3, 2)::int > 50 then 'f' else 'm' end as gender,
        1900 + substr(birth_number, 1, 2)::int as born from raw_client;
    alter table client add primary key (client_id), alter district_id set not null,
        alter gender set not null, alter born set not null,
        add foreign key (district_id) references district;
    create table disp as select disp_id::int, client_id::int, account_id::int, type from raw_disp;
    alter table disp add primary key (disp_id), add unique (client_id),
        alter client_id set not null, alter account_id set not null, alter type set not null,
        add foreign key (client_id) references client,
        add foreign key (account_id) references account;
    create table card as select card_id::int, disp_id::int, type,
        to_date('19' || substr(issued, 1, 6), 'YYYYMMDD') as issued from raw_card;
    alter table card add primary key (card_id), alter disp_id set not null, alter type set not null,
        alter issued set not null, add foreign key (disp_id) references disp;
    create table loan as select loan_id::int, account_id::int, to_date('19' || date, 'YYYYMMDD')
        as granted, amount::int, duration::int, payments::numeric(10, 2), status from raw_loan;
    alter table loan add primary key (loan_id), alter account_id set not null,
        alter granted set not null, alter amount set not null, alter duration set not null,
        alter payments set not null, alter status set not null,
        add foreign key (account_id) references account;
    create table orders as select order_id::int, account_id::int, bank_to,
        amount::numeric(10, 2), k_symbol from raw_orders;
    alter table orders add primary key (order_id), alter account_id set not null,
        alter bank_to set not null, alter amount set not null, alter k_symbol set not null,
        add foreign key (account_id) references account;
    """,
    "select dp.protect('account', privacy_unit => 'account_id', delta => 0.5);"
    "select dp.declare_public('district');"
    "select dp.link('disp', 'client', array['client_id'], follow => false);"
    "select dp.link('client', 'disp', array['client_id'], array['client_id'],"
    " nulls => 'excluded');"
    + _domains(
        "account",
        frequency=_list("account", "frequency"),
        opened="date '1993-01-01', date '1997-12-31'",
    )
    + _domains("client", gender="array['f', 'm']", born="1910, 1990")
    + _domains("disp", type="array['OWNER', 'DISPONENT']")
    + _domains(
        "card",
        type="array['classic', 'gold', 'junior']",
        issued="date '1993-01-01', date '1998-12-31'",
    )
    + _domains(
        "loan",
        granted="date '1993-01-01', date '1998-12-31'",
        amount="0, 600000",
        duration="array[12, 24, 36, 48, 60]",
        payments="0, 10000",
        status="array['A', 'B', 'C', 'D']",
    )
    + _domains(
        "orders",
        bank_to=_list("orders", "bank_to"),
        amount="0, 15000",
        k_symbol=_list("orders", "k_symbol"),
    ),
    {
        "raw_district": "berka/district.asc",
        "raw_account": "berka/account.asc",
        "raw_client": "berka/client.asc",
        "raw_disp": "berka/disp.asc",
        "raw_card": "berka/card.asc",
        "raw_loan": "berka/loan.asc",
        "raw_orders": "berka/order.asc",
    },
    ";",
)

GENRES = ("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Drama", "Fantasy")
GENRES += ("Horror", "Mystery", "Romance", "Sci-Fi", "Thriller", "War")
_FLAGS = ", ".join(f"genres like '%{g}%' as {g.lower().replace('-', '_')}" for g in GENRES)

MOVIELENS = Data(
    ("movies", "users", "ratings"),
    {"ratings": 30},
    f"""
    create table movies as select item_id::int as movie_id,
        (substring(title from '\\((\\d{{4}})\\)\\s*$'))::int / 10 * 10 as decade, {_FLAGS}
        from raw_movies;
    alter table movies add primary key (movie_id);
    create table users as select distinct user_id::int from raw_ratings;
    alter table users add primary key (user_id);
    create table ratings as select user_id::int, item_id::int as movie_id,
        rating::numeric(2, 1), to_timestamp(timestamp::bigint)::date as rated from raw_ratings;
    alter table ratings add primary key (user_id, movie_id), alter rating set not null,
        alter rated set not null, add foreign key (user_id) references users,
        add foreign key (movie_id) references movies;
    """,
    "select dp.protect('users', privacy_unit => 'user_id', delta => 0.5);"
    "select dp.declare_public('movies');"
    + _domains(
        "ratings",
        rating="array[0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]",
        rated="date '1996-01-01', date '2018-12-31'",
    ),
    {"raw_movies": "movielens_latest_small/movies.csv"}
    | {"raw_ratings": "movielens_latest_small/ratings.csv.gz"},
)

STATS = Data(
    ("users", "posts", "badges"),
    {"posts": 20, "badges": 20},
    """
    create table users as select id::int, least(reputation::int, 640) as reputation,
        creationdate::timestamp::date as since, least(views::int, 63) as views,
        least(upvotes::int, 63) as upvotes, least(downvotes::int, 7) as downvotes from raw_users;
    alter table users add primary key (id), alter reputation set not null, alter since set not null,
        alter views set not null, alter upvotes set not null, alter downvotes set not null;
    create table posts as select id::int, posttypeid::int as kind, creationdate::timestamp::date
        as written, least(greatest(score::int, -4), 27) as score,
        case when viewcount <> '' then least(viewcount::int, 3199) end as views,
        nullif(owneruserid, '')::int as owner,
        case when answercount <> '' then least(answercount::int, 9) end as answers,
        least(commentcount::int, 15) as comments from raw_posts;
    update posts set owner = null where owner not in (select id from users);
    alter table posts add primary key (id), alter kind set not null, alter written set not null,
        alter score set not null, alter comments set not null,
        add foreign key (owner) references users;
    create table badges as select id::int, userid::int as user_id, date::timestamp::date as won
        from raw_badges where userid::int in (select id from users);
    alter table badges add primary key (id), alter user_id set not null, alter won set not null,
        add foreign key (user_id) references users;
    """,
    "select dp.protect('users', privacy_unit => 'id', delta => 0.5);"
    "select dp.link('posts', 'users', array['owner'], nulls => 'excluded');"
    + _domains(
        "users",
        reputation="1, 640",
        since="date '2010-07-01', date '2014-09-30'",
        views="0, 63",
        upvotes="0, 63",
        downvotes="0, 7",
    )
    + _domains(
        "posts",
        kind="1, 7",
        written="date '2009-01-01', date '2014-09-30'",
        score="-4, 27",
        views="0, 3199, includes_null => true",
        answers="0, 9, includes_null => true",
        comments="0, 15",
    )
    + _domains("badges", won="date '2010-07-01', date '2014-09-30'"),
    {"raw_users": "stats_ceb/users.csv.gz", "raw_posts": "stats_ceb/posts.csv.gz"}
    | {"raw_badges": "stats_ceb/badges.csv.gz"},
)

_LISTED = ("gender", "signup_method", "language", "affiliate_channel", "affiliate_provider")
_LISTED += ("first_affiliate_tracked", "signup_app", "first_device_type", "first_browser")
_LISTED += ("country_destination",)
_FILLED = ", ".join(f"coalesce({c}, '') as {c}" for c in _LISTED)
_NOT_NULL = ", ".join(f"alter {c} set not null" for c in _LISTED)

AIRBNB = Data(
    ("users", "sessions"),
    {"sessions": 50},
    f"""
    create table users as select id, date_account_created::date as created,
        case when age <> '' then least(greatest(age::numeric::int, 16), 79) end as age, {_FILLED}
        from raw_users;
    alter table users add primary key (id), alter created set not null,
        {_NOT_NULL};
    create table sessions as select row_number() over () as session_id, user_id,
        coalesce(action_type, '') as action_type, device_type,
        case when secs_elapsed <> '' then least(secs_elapsed::numeric::int, 31999) end as seconds
        from raw_sessions;
    alter table sessions add primary key (session_id), alter user_id set not null,
        alter action_type set not null, alter device_type set not null,
        add foreign key (user_id) references users;
    """,
    "select dp.protect('users', privacy_unit => 'id', delta => 0.5);"
    + _domains(
        "users",
        created="date '2010-01-01', date '2014-12-31'",
        age="16, 79, includes_null => true",
        **{c: _list("users", c) for c in _LISTED},
    )
    + _domains(
        "sessions",
        action_type=_list("sessions", "action_type"),
        device_type=_list("sessions", "device_type"),
        seconds="0, 31999, includes_null => true",
    ),
    {"raw_users": "airbnb_subsampled/users.csv.gz"}
    | {"raw_sessions": "airbnb_subsampled/sessions.csv.gz"},
)

_ADULT = {
    "age": 85, "workclass": 9, "fnlwgt": 100, "education-num": 16, "marital-status": 7,
    "occupation": 15, "relationship": 6, "race": 5, "sex": 2, "capital-gain": 100,
    "capital-loss": 100, "hours-per-week": 99, "native-country": 42, "income>50k": 2,
}  # fmt: skip
_ADULT_NAMES = {name: name.replace("-", "_").replace(">", "_") for name in _ADULT}

ADULT = Data(
    ("adult",),
    {},
    "create table adult as select row_number() over ()::int as id, "
    + ", ".join(f'"{name}"::smallint as {plain}' for name, plain in _ADULT_NAMES.items())
    + " from raw_adult; alter table adult add primary key (id), "
    + ", ".join(f"alter {plain} set not null" for plain in _ADULT_NAMES.values()),
    "select dp.protect('adult', delta => 0.5);"
    + _domains("adult", **{_ADULT_NAMES[name]: f"0, {n - 1}" for name, n in _ADULT.items()}),
    {"raw_adult": "adult_mbi/adult.csv.gz"},
    bins=100,
    delta=1e-9,
)

TPCH = Data(
    ("nation", "customer", "orders", "lineitem"),
    {"orders": 30, "lineitem": 120},
    "",
    "select dp.protect('customer', privacy_unit => 'c_custkey', delta => 0.5);"
    "select dp.declare_public(c.oid) from pg_class as c"
    " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'"
    " and c.relname in ('nation', 'region', 'part', 'partsupp', 'supplier');"
    + _domains(
        "customer",
        c_mktsegment=_list("customer", "c_mktsegment::text"),
        c_acctbal="-1000, 10000",
    )
    + _domains(
        "orders",
        o_orderstatus="array['F', 'O', 'P']",
        o_orderpriority=_list("orders", "o_orderpriority::text"),
        o_totalprice="0, 400000",
        o_orderdate="date '1992-01-01', date '1998-12-31'",
    )
    + _domains(
        "lineitem",
        l_returnflag="array['A', 'N', 'R']",
        l_linestatus="array['F', 'O']",
        l_shipmode=_list("lineitem", "l_shipmode::text"),
        l_quantity="1, 50",
        l_discount="0, 0.1",
        l_shipdate="date '1992-01-01', date '1998-12-31'",
    ),
)

ALL = {
    "berka": BERKA,
    "movielens": MOVIELENS,
    "stats": STATS,
    "airbnb": AIRBNB,
    "adult": ADULT,
    "tpch": TPCH,
}
