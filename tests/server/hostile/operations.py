"""Heavy inputs for each operator, function and cast of the allow-list, generated from the list.

Columns of all types hold extreme values in the heavy rows.  Each operation is applied to columns and
constants; operations on long texts and on numbers of many digits are nested as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dpsql.query import functions

#: Types whose values have no bound on their length, with their columns.
LONG_TYPES = {"text": "t", "bpchar": "b", "numeric": "n", "bytea": "y"}
OTHER_TYPES = {
    "smallint": "s",
    "integer": "i",
    "bigint": "l",
    "real": "r",
    "double precision": "f",
    '"char"': "c",
    "boolean": "q",
    "date": "d",
    "time without time zone": "h",
    "timestamp without time zone": "p",
    "timestamp with time zone": "z",
    "interval": "v",
    "uuid": "u",
    "anyenum": "m",
}
COLUMNS = LONG_TYPES | OTHER_TYPES
LONG = "a" * 100
CONSTANTS = {
    "text": ("'a'", f"'{'%a' * 200}'", f"'{LONG}'"),
    "integer": ("3", "1000"),
    "numeric": ("3.5", "1e-1000"),
    "double precision": ("2.5::float8",),
    "date": ("date '2000-01-01'",),
    "timestamp without time zone": ("timestamp '2000-01-01'",),
    "timestamp with time zone": ("timestamptz '2000-01-01 00:00+00'",),
    "interval": ("interval '999 years'",),
    "anyenum": ("'a'",),
}
TARGETS = ("smallint", "bigint", "numeric(30,10)", "real", "double precision", "text", "char(9)", "varchar(9)")  # fmt: skip
#: What an operation's result goes through next, by its type.
NESTED = {
    "text": (
        "replace({0}, 'a', '" + LONG + "')",
        "replace(replace({0}, 'a', '" + LONG + "'), 'a', '" + LONG + "') like '" + "%a" * 200 + "'",
        "upper({0}) || lower({0}) || {0}",
        "length(initcap(reverse({0} || {0})))",
        "btrim(upper({0}), 'a')",
    ),
    "numeric": ("{0} * {0}", "{0} / 3 + {0}", "round({0}, 1000)", "({0})::bigint", "({0})::float8"),
    "integer": ("{0} * {0} + {0}",),
    "double precision": ("{0} * {0}", "({0})::numeric"),
}
#: Functions that are not written as a name and arguments, or whose arguments must be constants.
WRITTEN = {
    "position": ("position('a' in {0})",),
    "width_bucket": ("width_bucket({0}, 0.5, 10, 5)",),
    "like_escape": ("t like 'a!%' escape '!'",),
    "extract": ("extract(epoch from {1})", "extract(minute from {1})", "extract(year from {1})"),
    "date_part": ("date_part('epoch', {1})", "date_part('minute', {1})", "date_part('year', {1})"),
    "date_trunc": ("date_trunc('century', {1})", "date_trunc('minute', {1})"),
    "timezone": ("({1} at time zone 'Asia/Tokyo')",),
}
#: Functions without arguments: they are constants, which no row changes.
CONSTANT = {("now",), ("transaction_timestamp",), ("statement_timestamp",)}
#: An operator or function with the types of its arguments, or a cast with a column and a type.
Signature = tuple[str, ...]

_HUGE = "repeat('9', 131072)::numeric"
_FRACTION = "('-' || repeat('9', 16000) || '.' || repeat('9', 16000))::numeric"
#: Extreme values of each column; heavy rows take them in turn.
EXTREMES = {
    "t": ("repeat('a', 1048576)", "repeat('a', 1048577)", "repeat('a', 12000000)", "repeat('ɐȺ', 262144)", r"repeat('a%\_', 262144)", "repeat(' ', 1048576)"),
    "n": (_HUGE, "('0.' || repeat('0', 16382) || '1')::numeric", _FRACTION, "'NaN'", "'Infinity'", "('1' || repeat('0', 100))::numeric"),
    "s": ("32767", "-32768", "0"),
    "i": ("2147483647", "-2147483648", "0"),
    "l": ("9223372036854775807", "'-9223372036854775808'", "0"),
    "r": ("'3.4028235e38'", "'1e-45'", "'NaN'", "'-Infinity'"),
    "f": ("1e308", "5e-324", "'NaN'", "'-Infinity'"),
    "c": (r"'\377'", "''"),
    "q": ("true", "null"),
    "d": ("'infinity'", "'4714-11-24 BC'", "'5874897-12-31'", "'-infinity'"),
    "h": ("'24:00:00'",),
    "p": ("'infinity'", "'4714-11-24 00:00:00 BC'", "'294276-12-31 23:59:59.999999'", "'-infinity'"),
    "z": ("'infinity'", "'4714-11-24 00:00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "'-infinity'"),
    "v": ("'-178000000 years'", "'2147483647 days'", "'1 us'"),
    "u": ("'ffffffff-ffff-ffff-ffff-ffffffffffff'",),
    "m": ("'b'",),
}  # fmt: skip
#: Columns of all relations with heavy rows, and the values of a row that is not heavy.
DEFINED = (
    "t text, b bpchar, n numeric, y bytea, s smallint, i int, l bigint, r real, f double precision,"
    ' c "char", q boolean, d date, h time, p timestamp, z timestamptz, v interval, u uuid, m mood'
)
LIGHT = (
    "'x', 'x', 1, 'x', 1, 1, 1, 1, 1, 'x', false, '2000-01-01', '10:00', '2000-01-01', '2000-01-01 00:00+00',"
    " '1 day', '00000000-0000-0000-0000-000000000000', 'a'"
)
HEAVY_ROWS = 6


def planted(relation: str) -> str:
    """Return statements that make the first rows of a relation heavy."""
    found = []
    for row in range(HEAVY_ROWS):
        value = {column: listed[row % len(listed)] for column, listed in EXTREMES.items()}
        value |= {"b": value["t"], "y": f"convert_to({value['t']}, 'UTF8')"}
        changes = ", ".join(f"{column} = {text}" for column, text in value.items())
        found.append(f"update {relation} set {changes} where id = {row + 1}")
    return "; ".join(found)


def _operands(*types: str) -> Iterator[tuple[str, ...]]:
    """Yield lists of operands: columns, and constants in each place; one operand at least is a column."""
    listed = [COLUMNS.get(type_) or CONSTANTS.get(type_, ("",))[0] for type_ in types]
    yield tuple(listed)
    long = set(types) & LONG_TYPES.keys()
    for place, type_ in enumerate(types):
        for constant in CONSTANTS.get(type_, ())[: 2 if long else 1] * (len(types) > 1):
            yield (*listed[:place], constant, *listed[place + 1 :])
    for number in range(2 if long else 0):  # many need constants after the first
        rest = [CONSTANTS.get(type_, ("",))[-number] for type_ in types[1:]]
        yield (listed[0], *rest)


def signatures() -> set[Signature]:
    """Return all operators and functions of the allow-list that can be applied to columns."""
    return {*functions.operators(), *functions.functions()} - CONSTANT


def operations() -> Iterator[tuple[Signature, str, str]]:
    """Yield each operation of the allow-list and its expressions, with the type of the result."""
    for (operator, left, right), (_, result) in functions.operators().items():
        for listed in _operands(left, right) if left else _operands(right):
            yield (operator, left, right), f"({f' {operator} '.join(('', *listed)[-2:])})", result
    for (name, *types), (_, result) in functions.functions().items():
        if name in WRITTEN:
            columns = [COLUMNS.get(type_, "t") for type_ in types]
            for written in WRITTEN[name]:
                yield (name, *types), written.format(*columns), result
        elif types:
            for listed in _operands(*types):
                yield (name, *types), f'"{name}"({", ".join(listed)})', result
    for column, target in itertools.product(COLUMNS.values(), TARGETS):
        yield ("cast", column, target), f"cast({column} as {target})", target.split("(")[0]


def nested() -> Iterator[tuple[str, str]]:
    """Yield operations within operations, where results can be long."""
    plain = {e: type_ for (_, *types), e, type_ in operations() if {*types} & LONG_TYPES.keys()}
    plain |= {column: type_ for type_, column in LONG_TYPES.items()}
    for at, (expression, type_) in enumerate(plain.items()):
        if nests := NESTED.get(type_, ()):
            yield nests[at % len(nests)].format(expression), ""
