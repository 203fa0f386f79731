"""Signatures and OIDs of what may appear in conditions and group keys.

OIDs of built-in functions never change within a major version and in practice never at
all; a server test compares every line with the running server.  An entry here is not yet
permission: :mod:`dpsql.query.functions` says for each how it is made total.
"""

from __future__ import annotations

# operator | left | right | function OID | result
OPERATORS = """\
!~~ | bpchar | text | 1632 | boolean
!~~ | text | text | 851 | boolean
!~~* | bpchar | text | 1661 | boolean
!~~* | text | text | 1634 | boolean
% | bigint | bigint | 945 | bigint
% | integer | integer | 156 | integer
% | numeric | numeric | 1729 | numeric
% | smallint | smallint | 155 | smallint
* | bigint | bigint | 465 | bigint
* | bigint | integer | 1276 | bigint
* | bigint | smallint | 839 | bigint
* | double precision | double precision | 216 | double precision
* | double precision | real | 283 | double precision
* | integer | bigint | 1280 | bigint
* | integer | integer | 141 | integer
* | integer | smallint | 171 | integer
* | numeric | numeric | 1726 | numeric
* | real | double precision | 279 | double precision
* | real | real | 202 | real
* | smallint | bigint | 943 | bigint
* | smallint | integer | 170 | integer
* | smallint | smallint | 152 | smallint
+ | bigint | bigint | 463 | bigint
+ | bigint | integer | 1274 | bigint
+ | bigint | smallint | 837 | bigint
+ | date | integer | 1141 | date
+ | date | interval | 2071 | timestamp without time zone
+ | double precision | double precision | 218 | double precision
+ | double precision | real | 285 | double precision
+ | integer | bigint | 1278 | bigint
+ | integer | date | 2550 | date
+ | integer | integer | 177 | integer
+ | integer | smallint | 179 | integer
+ | interval | date | 2546 | timestamp without time zone
+ | interval | timestamp without time zone | 2548 | timestamp without time zone
+ | numeric | numeric | 1724 | numeric
+ | real | double precision | 281 | double precision
+ | real | real | 204 | real
+ | smallint | bigint | 841 | bigint
+ | smallint | integer | 178 | integer
+ | smallint | smallint | 176 | smallint
+ | timestamp without time zone | interval | 2032 | timestamp without time zone
- |  | bigint | 462 | bigint
- |  | double precision | 220 | double precision
- |  | integer | 212 | integer
- |  | numeric | 1771 | numeric
- |  | real | 206 | real
- |  | smallint | 213 | smallint
- | bigint | bigint | 464 | bigint
- | bigint | integer | 1275 | bigint
- | bigint | smallint | 838 | bigint
- | date | date | 1140 | integer
- | date | integer | 1142 | date
- | date | interval | 2072 | timestamp without time zone
- | double precision | double precision | 219 | double precision
- | double precision | real | 286 | double precision
- | integer | bigint | 1279 | bigint
- | integer | integer | 181 | integer
- | integer | smallint | 183 | integer
- | numeric | numeric | 1725 | numeric
- | real | double precision | 282 | double precision
- | real | real | 205 | real
- | smallint | bigint | 942 | bigint
- | smallint | integer | 182 | integer
- | smallint | smallint | 180 | smallint
- | timestamp without time zone | interval | 2033 | timestamp without time zone
- | timestamp with time zone | timestamp with time zone | 1188 | interval
- | timestamp without time zone | timestamp without time zone | 2031 | interval
/ | bigint | bigint | 466 | bigint
/ | bigint | integer | 1277 | bigint
/ | bigint | smallint | 840 | bigint
/ | double precision | double precision | 217 | double precision
/ | double precision | real | 284 | double precision
/ | integer | bigint | 1281 | bigint
/ | integer | integer | 154 | integer
/ | integer | smallint | 173 | integer
/ | numeric | numeric | 1727 | numeric
/ | real | double precision | 280 | double precision
/ | real | real | 203 | real
/ | smallint | bigint | 948 | bigint
/ | smallint | integer | 172 | integer
/ | smallint | smallint | 153 | smallint
< | "char" | "char" | 1246 | boolean
< | anyenum | anyenum | 3510 | boolean
< | bigint | bigint | 469 | boolean
< | bigint | integer | 476 | boolean
< | bigint | smallint | 1858 | boolean
< | boolean | boolean | 56 | boolean
< | bytea | bytea | 1949 | boolean
< | bpchar | bpchar | 1049 | boolean
< | date | date | 1087 | boolean
< | date | timestamp with time zone | 2351 | boolean
< | date | timestamp without time zone | 2338 | boolean
< | double precision | double precision | 295 | boolean
< | double precision | real | 307 | boolean
< | integer | bigint | 854 | boolean
< | integer | integer | 66 | boolean
< | integer | smallint | 161 | boolean
< | interval | interval | 1164 | boolean
< | numeric | numeric | 1722 | boolean
< | real | double precision | 301 | boolean
< | real | real | 289 | boolean
< | smallint | bigint | 1852 | boolean
< | smallint | integer | 160 | boolean
< | smallint | smallint | 64 | boolean
< | text | text | 740 | boolean
< | time without time zone | time without time zone | 1102 | boolean
< | timestamp with time zone | date | 2377 | boolean
< | timestamp with time zone | timestamp with time zone | 1154 | boolean
< | timestamp with time zone | timestamp without time zone | 2527 | boolean
< | timestamp without time zone | date | 2364 | boolean
< | timestamp without time zone | timestamp with time zone | 2520 | boolean
< | timestamp without time zone | timestamp without time zone | 2054 | boolean
< | uuid | uuid | 2954 | boolean
<= | "char" | "char" | 72 | boolean
<= | anyenum | anyenum | 3512 | boolean
<= | bigint | bigint | 471 | boolean
<= | bigint | integer | 478 | boolean
<= | bigint | smallint | 1860 | boolean
<= | boolean | boolean | 1691 | boolean
<= | bytea | bytea | 1950 | boolean
<= | bpchar | bpchar | 1050 | boolean
<= | date | date | 1088 | boolean
<= | date | timestamp with time zone | 2352 | boolean
<= | date | timestamp without time zone | 2339 | boolean
<= | double precision | double precision | 296 | boolean
<= | double precision | real | 308 | boolean
<= | integer | bigint | 856 | boolean
<= | integer | integer | 149 | boolean
<= | integer | smallint | 167 | boolean
<= | interval | interval | 1165 | boolean
<= | numeric | numeric | 1723 | boolean
<= | real | double precision | 302 | boolean
<= | real | real | 290 | boolean
<= | smallint | bigint | 1854 | boolean
<= | smallint | integer | 166 | boolean
<= | smallint | smallint | 148 | boolean
<= | text | text | 741 | boolean
<= | time without time zone | time without time zone | 1103 | boolean
<= | timestamp with time zone | date | 2378 | boolean
<= | timestamp with time zone | timestamp with time zone | 1155 | boolean
<= | timestamp with time zone | timestamp without time zone | 2528 | boolean
<= | timestamp without time zone | date | 2365 | boolean
<= | timestamp without time zone | timestamp with time zone | 2521 | boolean
<= | timestamp without time zone | timestamp without time zone | 2055 | boolean
<= | uuid | uuid | 2955 | boolean
<> | "char" | "char" | 70 | boolean
<> | anyenum | anyenum | 3509 | boolean
<> | bigint | bigint | 468 | boolean
<> | bigint | integer | 475 | boolean
<> | bigint | smallint | 1857 | boolean
<> | boolean | boolean | 84 | boolean
<> | bytea | bytea | 1953 | boolean
<> | bpchar | bpchar | 1053 | boolean
<> | date | date | 1091 | boolean
<> | date | timestamp with time zone | 2356 | boolean
<> | date | timestamp without time zone | 2343 | boolean
<> | double precision | double precision | 294 | boolean
<> | double precision | real | 306 | boolean
<> | integer | bigint | 853 | boolean
<> | integer | integer | 144 | boolean
<> | integer | smallint | 165 | boolean
<> | interval | interval | 1163 | boolean
<> | numeric | numeric | 1719 | boolean
<> | real | double precision | 300 | boolean
<> | real | real | 288 | boolean
<> | smallint | bigint | 1851 | boolean
<> | smallint | integer | 164 | boolean
<> | smallint | smallint | 145 | boolean
<> | text | text | 157 | boolean
<> | time without time zone | time without time zone | 1106 | boolean
<> | timestamp with time zone | date | 2382 | boolean
<> | timestamp with time zone | timestamp with time zone | 1153 | boolean
<> | timestamp with time zone | timestamp without time zone | 2532 | boolean
<> | timestamp without time zone | date | 2369 | boolean
<> | timestamp without time zone | timestamp with time zone | 2525 | boolean
<> | timestamp without time zone | timestamp without time zone | 2053 | boolean
<> | uuid | uuid | 2959 | boolean
= | "char" | "char" | 61 | boolean
= | anyenum | anyenum | 3508 | boolean
= | bigint | bigint | 467 | boolean
= | bigint | integer | 474 | boolean
= | bigint | smallint | 1856 | boolean
= | boolean | boolean | 60 | boolean
= | bytea | bytea | 1948 | boolean
= | bpchar | bpchar | 1048 | boolean
= | date | date | 1086 | boolean
= | date | timestamp with time zone | 2353 | boolean
= | date | timestamp without time zone | 2340 | boolean
= | double precision | double precision | 293 | boolean
= | double precision | real | 305 | boolean
= | integer | bigint | 852 | boolean
= | integer | integer | 65 | boolean
= | integer | smallint | 159 | boolean
= | interval | interval | 1162 | boolean
= | numeric | numeric | 1718 | boolean
= | real | double precision | 299 | boolean
= | real | real | 287 | boolean
= | smallint | bigint | 1850 | boolean
= | smallint | integer | 158 | boolean
= | smallint | smallint | 63 | boolean
= | text | text | 67 | boolean
= | time without time zone | time without time zone | 1145 | boolean
= | timestamp with time zone | date | 2379 | boolean
= | timestamp with time zone | timestamp with time zone | 1152 | boolean
= | timestamp with time zone | timestamp without time zone | 2529 | boolean
= | timestamp without time zone | date | 2366 | boolean
= | timestamp without time zone | timestamp with time zone | 2522 | boolean
= | timestamp without time zone | timestamp without time zone | 2052 | boolean
= | uuid | uuid | 2956 | boolean
> | "char" | "char" | 73 | boolean
> | anyenum | anyenum | 3511 | boolean
> | bigint | bigint | 470 | boolean
> | bigint | integer | 477 | boolean
> | bigint | smallint | 1859 | boolean
> | boolean | boolean | 57 | boolean
> | bytea | bytea | 1951 | boolean
> | bpchar | bpchar | 1051 | boolean
> | date | date | 1089 | boolean
> | date | timestamp with time zone | 2354 | boolean
> | date | timestamp without time zone | 2341 | boolean
> | double precision | double precision | 297 | boolean
> | double precision | real | 309 | boolean
> | integer | bigint | 855 | boolean
> | integer | integer | 147 | boolean
> | integer | smallint | 163 | boolean
> | interval | interval | 1167 | boolean
> | numeric | numeric | 1720 | boolean
> | real | double precision | 303 | boolean
> | real | real | 291 | boolean
> | smallint | bigint | 1853 | boolean
> | smallint | integer | 162 | boolean
> | smallint | smallint | 146 | boolean
> | text | text | 742 | boolean
> | time without time zone | time without time zone | 1104 | boolean
> | timestamp with time zone | date | 2380 | boolean
> | timestamp with time zone | timestamp with time zone | 1157 | boolean
> | timestamp with time zone | timestamp without time zone | 2530 | boolean
> | timestamp without time zone | date | 2367 | boolean
> | timestamp without time zone | timestamp with time zone | 2523 | boolean
> | timestamp without time zone | timestamp without time zone | 2057 | boolean
> | uuid | uuid | 2958 | boolean
>= | "char" | "char" | 74 | boolean
>= | anyenum | anyenum | 3513 | boolean
>= | bigint | bigint | 472 | boolean
>= | bigint | integer | 479 | boolean
>= | bigint | smallint | 1861 | boolean
>= | boolean | boolean | 1692 | boolean
>= | bytea | bytea | 1952 | boolean
>= | bpchar | bpchar | 1052 | boolean
>= | date | date | 1090 | boolean
>= | date | timestamp with time zone | 2355 | boolean
>= | date | timestamp without time zone | 2342 | boolean
>= | double precision | double precision | 298 | boolean
>= | double precision | real | 310 | boolean
>= | integer | bigint | 857 | boolean
>= | integer | integer | 150 | boolean
>= | integer | smallint | 169 | boolean
>= | interval | interval | 1166 | boolean
>= | numeric | numeric | 1721 | boolean
>= | real | double precision | 304 | boolean
>= | real | real | 292 | boolean
>= | smallint | bigint | 1855 | boolean
>= | smallint | integer | 168 | boolean
>= | smallint | smallint | 151 | boolean
>= | text | text | 743 | boolean
>= | time without time zone | time without time zone | 1105 | boolean
>= | timestamp with time zone | date | 2381 | boolean
>= | timestamp with time zone | timestamp with time zone | 1156 | boolean
>= | timestamp with time zone | timestamp without time zone | 2531 | boolean
>= | timestamp without time zone | date | 2368 | boolean
>= | timestamp without time zone | timestamp with time zone | 2524 | boolean
>= | timestamp without time zone | timestamp without time zone | 2056 | boolean
>= | uuid | uuid | 2957 | boolean
|| | text | text | 1258 | text
~~ | bpchar | text | 1631 | boolean
~~ | text | text | 850 | boolean
~~* | bpchar | text | 1660 | boolean
~~* | text | text | 1633 | boolean
"""

# name | arguments | OID | result
FUNCTIONS = """\
abs | smallint | 1398 | smallint
abs | integer | 1397 | integer
abs | bigint | 1396 | bigint
abs | numeric | 1705 | numeric
abs | real | 1394 | real
abs | double precision | 1395 | double precision
ceil | numeric | 1711 | numeric
ceil | double precision | 2308 | double precision
ceiling | numeric | 2167 | numeric
ceiling | double precision | 2320 | double precision
floor | numeric | 1712 | numeric
floor | double precision | 2309 | double precision
round | numeric | 1708 | numeric
round | double precision | 1342 | double precision
round | numeric, integer | 1707 | numeric
trunc | numeric | 1710 | numeric
trunc | double precision | 1343 | double precision
trunc | numeric, integer | 1709 | numeric
sign | numeric | 1706 | numeric
sign | double precision | 2310 | double precision
mod | smallint, smallint | 940 | smallint
mod | integer, integer | 941 | integer
mod | bigint, bigint | 947 | bigint
mod | numeric, numeric | 1728 | numeric
width_bucket | numeric, numeric, numeric, integer | 2170 | integer
width_bucket | double precision, double precision, double precision, integer | 320 | integer
lower | text | 870 | text
upper | text | 871 | text
initcap | text | 872 | text
length | text | 1317 | integer
length | bpchar | 1318 | integer
char_length | text | 1381 | integer
char_length | bpchar | 1372 | integer
character_length | text | 1369 | integer
character_length | bpchar | 1367 | integer
octet_length | text | 1374 | integer
octet_length | bytea | 720 | integer
length | bytea | 2010 | integer
left | text, integer | 3060 | text
right | text, integer | 3061 | text
substr | text, integer | 883 | text
substr | text, integer, integer | 877 | text
substring | text, integer | 937 | text
substring | text, integer, integer | 936 | text
btrim | text | 885 | text
btrim | text, text | 884 | text
ltrim | text | 881 | text
ltrim | text, text | 875 | text
rtrim | text | 882 | text
rtrim | text, text | 876 | text
strpos | text, text | 868 | integer
position | text, text | 849 | integer
starts_with | text, text | 3696 | boolean
replace | text, text, text | 2087 | text
reverse | text | 3062 | text
date_trunc | text, timestamp without time zone | 2020 | timestamp without time zone
date_trunc | text, timestamp with time zone | 1217 | timestamp with time zone
date_part | text, date | 1384 | double precision
date_part | text, timestamp without time zone | 2021 | double precision
date_part | text, timestamp with time zone | 1171 | double precision
date_part | text, time without time zone | 1385 | double precision
date_part | text, interval | 1172 | double precision
extract | text, date | 6199 | numeric
extract | text, timestamp without time zone | 6202 | numeric
extract | text, timestamp with time zone | 6203 | numeric
extract | text, time without time zone | 6200 | numeric
extract | text, interval | 6204 | numeric
timezone | text, timestamp with time zone | 1159 | timestamp without time zone
timezone | text, timestamp without time zone | 2069 | timestamp with time zone
isfinite | date | 1373 | boolean
isfinite | timestamp without time zone | 2048 | boolean
isfinite | timestamp with time zone | 1389 | boolean
like_escape | text, text | 1637 | text
now |  | 1299 | timestamp with time zone
transaction_timestamp |  | 2647 | timestamp with time zone
statement_timestamp |  | 2648 | timestamp with time zone
trim_scale | numeric | 5043 | numeric
octet_length | bpchar | 1375 | integer
"""

# source | target | function OID (0: none) | method
CASTS = """\
"char" | character varying | 946 | f
"char" | integer | 77 | f
"char" | text | 946 | f
bigint | double precision | 482 | f
bigint | integer | 480 | f
bigint | numeric | 1781 | f
bigint | real | 652 | f
bigint | smallint | 714 | f
boolean | bpchar | 2971 | f
boolean | character varying | 2971 | f
boolean | integer | 2558 | f
boolean | text | 2971 | f
bpchar | "char" | 944 | f
bpchar | bpchar | 668 | f
bpchar | character varying | 401 | f
bpchar | text | 401 | f
character varying | "char" | 944 | f
character varying | bpchar | 0 | b
character varying | character varying | 669 | f
character varying | text | 0 | b
date | timestamp with time zone | 1174 | f
date | timestamp without time zone | 2024 | f
double precision | bigint | 483 | f
double precision | integer | 317 | f
double precision | numeric | 1743 | f
double precision | real | 312 | f
double precision | smallint | 237 | f
integer | "char" | 78 | f
integer | bigint | 481 | f
integer | boolean | 2557 | f
integer | double precision | 316 | f
integer | numeric | 1740 | f
integer | real | 318 | f
integer | smallint | 314 | f
interval | interval | 1200 | f
interval | time without time zone | 1419 | f
numeric | bigint | 1779 | f
numeric | double precision | 1746 | f
numeric | integer | 1744 | f
numeric | numeric | 1703 | f
numeric | real | 1745 | f
numeric | smallint | 1783 | f
real | bigint | 653 | f
real | double precision | 311 | f
real | integer | 319 | f
real | numeric | 1742 | f
real | smallint | 238 | f
smallint | bigint | 754 | f
smallint | double precision | 235 | f
smallint | integer | 313 | f
smallint | numeric | 1782 | f
smallint | real | 236 | f
text | "char" | 944 | f
text | bpchar | 0 | b
text | character varying | 0 | b
time with time zone | time with time zone | 1969 | f
time with time zone | time without time zone | 2046 | f
time without time zone | interval | 1370 | f
time without time zone | time with time zone | 2047 | f
time without time zone | time without time zone | 1968 | f
timestamp with time zone | date | 1178 | f
timestamp with time zone | time with time zone | 1388 | f
timestamp with time zone | time without time zone | 2019 | f
timestamp with time zone | timestamp with time zone | 1967 | f
timestamp with time zone | timestamp without time zone | 2027 | f
timestamp without time zone | date | 2029 | f
timestamp without time zone | time without time zone | 1316 | f
timestamp without time zone | timestamp with time zone | 2028 | f
timestamp without time zone | timestamp without time zone | 1961 | f
"""

# input and output functions that conversions through text may call
INPUT_OUTPUT = frozenset(
    {
        38,
        39,
        42,
        43,
        46,
        47,
        460,
        461,
        1044,
        1045,
        1046,
        1047,
        1242,
        1243,
        1701,
        1702,
        2952,
        2953,
        3507,
    }
)
