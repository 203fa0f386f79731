"""Budgets that hold for each window: the calendar, what owners and analysts see, what is refused."""

from __future__ import annotations

import itertools
import random
import threading
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server.asking import say
from tests.server.waiting import wait_until

COUNT = "select dp_count(*) from client where c_id > %s"
UTC = timezone.utc


def budgets(connection: Any, role: str = "bob") -> dict[str, Any]:
    cursor = connection.execute("select * from dp.budgets where role = %s", (role,))
    (row,) = cursor.fetchall()
    return dict(zip((c.name for c in cursor.description), row, strict=True))


def grant(shop: Any, arguments: str) -> list[tuple[str, str, str]]:
    """Grant bob a budget as the owner does; return what the server said beside."""
    said = []
    with shop.connect(user="owner1") as owner:
        owner.add_notice_handler(
            lambda d: said.append((d.severity, d.message_primary, d.message_detail or ""))
        )
        owner.execute(f"select dp.grant_budget('bob', {arguments})")
    return said


def let_pass(shop: Any, length: str) -> None:
    """Move everything that the ledger compares with the clock back."""
    shop.sql(
        f"set timezone = 'UTC'; update dp.role_budget set window_anchor = window_anchor - interval '{length}'"
    )
    shop.sql(
        f"set timezone = 'UTC'; update dp.role_total set window_start = window_start - interval '{length}',"
        f" window_end = window_end - interval '{length}'"
    )
    shop.sql(
        f"set timezone = 'UTC'; update dp.loss set recorded_at = recorded_at - interval '{length}'"
    )


@pytest.mark.parametrize(
    ("anchor", "length", "moment", "starts", "ends"),
    [
        ("2025-01-31 10:00", "1 month", "2025-01-31 10:00", "2025-01-31 10:00", "2025-02-28 10:00"),
        ("2025-01-31 10:00", "1 month", "2025-02-28 09:59", "2025-01-31 10:00", "2025-02-28 10:00"),
        ("2025-01-31 10:00", "1 month", "2025-02-28 10:00", "2025-02-28 10:00", "2025-03-31 10:00"),
        ("2025-01-31 10:00", "1 month", "2025-04-30 10:00", "2025-04-30 10:00", "2025-05-31 10:00"),
        ("2024-02-29 00:00", "1 year", "2025-02-28 00:00", "2025-02-28 00:00", "2026-02-28 00:00"),
        ("2024-02-29 00:00", "1 year", "2028-03-01 00:00", "2028-02-29 00:00", "2029-02-28 00:00"),
        ("2025-03-29 12:00", "1 day", "2025-03-31 11:00", "2025-03-30 12:00", "2025-03-31 12:00"),
        ("2025-03-29 12:00", "1 day", "2024-01-01 00:00", "2025-03-29 12:00", "2025-03-30 12:00"),
        ("2025-01-01 00:00", "1 hour", "2025-01-01 05:30", "2025-01-01 05:00", "2025-01-01 06:00"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
def test_windows_follow_the_calendar_in_utc(
    database: Any, zone: str, anchor: str, length: str, moment: str, starts: str, ends: str
) -> None:
    with database.connect() as connection:
        connection.execute(f"set timezone = '{zone}'")
        row = connection.execute(
            "select starts at time zone 'UTC', ends at time zone 'UTC'"
            " from dp.window_period(%s::timestamp at time zone 'UTC', %s,"
            " %s::timestamp at time zone 'UTC')",
            (anchor, length, moment),
        ).fetchone()
    assert row == (datetime.fromisoformat(starts), datetime.fromisoformat(ends))


def test_windows_cover_all_time_without_gap(database: Any) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    lengths = [
        "1 hour",
        "1 month",
        "1 year",
        "7 days",
        "1 month 1 day",
        "3 months",
        "2 days 5:07:01",
    ]
    with database.connect() as connection:
        for _ in range(200):
            anchor = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**8))
            moment = anchor + timedelta(seconds=chance.randrange(4 * 10**9))
            length = chance.choice(lengths)
            period = "select starts, ends from dp.window_period(%s, %s, %s)"
            starts, ends = connection.execute(period, (anchor, length, moment)).fetchone()
            assert starts <= moment < ends
            assert (starts, ends) == connection.execute(period, (anchor, length, starts)).fetchone()
            following = connection.execute(period, (anchor, length, ends)).fetchone()
            assert following[0] == ends


def test_budgets_show_the_window_beside_the_loss_that_never_resets(shop: Any) -> None:
    grant(shop, "5, 1e-6, budget_window => '1 month'")
    bob = shop.connect(user="bob")
    bob.execute(COUNT, (1,))
    shop.sql("select dp.record_loss('bob', null, 0.5, 0, 'told by telephone')")
    seen = budgets(bob)
    assert seen["budget_window"] == timedelta(days=30)  # psycopg's month
    assert seen["epsilon_limit"] == 5
    assert seen["epsilon_spent"] == seen["window_epsilon_spent"] == Decimal("1.5")
    assert seen["epsilon_remaining"] == Decimal("3.5")
    assert seen["window_spends"] == seen["spends"] == 2
    assert timedelta(days=28) <= seen["window_end"] - seen["window_start"] <= timedelta(days=31)
    assert seen["window_start"] <= datetime.now(UTC) < seen["window_end"]

    let_pass(shop, "1 month 3 days")
    seen = budgets(bob)
    assert seen["window_epsilon_spent"] == seen["window_spends"] == 0
    assert seen["epsilon_spent"] == Decimal("1.5")
    assert seen["epsilon_remaining"] == 5
    assert seen["window_start"] <= datetime.now(UTC) < seen["window_end"]
    bob.execute(COUNT, (2,))
    seen = budgets(bob)
    assert (seen["window_epsilon_spent"], seen["epsilon_spent"]) == (1, Decimal("2.5"))
    assert seen["epsilon_remaining"] == 4
    assert (seen["window_spends"], seen["spends"]) == (1, 3)
    with shop.connect(user="owner1") as owner:
        (row,) = owner.execute(
            "select epsilon_spent, budget_window, window_end from dp.budgets"
            " where relation = 'public.client'"
        ).fetchall()
        assert row == (2, None, None)
        assert budgets(owner)["window_epsilon_spent"] == 1
        assert budgets(owner, "alice")["window_end"] is None


def test_zcdp_budgets_show_what_is_left_of_the_window(shop: Any) -> None:
    grant(shop, "2, 1e-6, 'zcdp', budget_window => '1 week'")
    bob = shop.connect(user="bob")
    bob.execute("set dp.epsilon = 0.25")
    for week in range(3):
        asked = 0
        while True:
            said = say(bob, COUNT.replace("%s", str(1000 * week + asked)))
            if said.startswith("PD"):
                assert said.startswith("PD001")
                assert "in the window of 7 days that ends at" in said
                break
            asked += 1
        seen = budgets(bob)
        assert seen["window_spends"] == asked
        assert seen["window_rho_spent"] <= seen["rho_limit"] < seen["window_rho_spent"] * 2
        rho = [float(seen[name]) for name in ("rho_spent", "rho_remaining", "rho_limit")]
        each = float(seen["window_rho_spent"])
        assert rho[:2] == pytest.approx([(week + 1) * each, rho[2] - each], rel=1e-9)
        assert seen["window_epsilon_spent"] <= 2
        assert seen["epsilon_remaining"] < Decimal("0.25")
        (implied,) = shop.sql(
            "select dp.zcdp_epsilon(%s::numeric, 5e-7)", seen["rho_spent"]
        )[0]  # fmt: skip
        assert week == 0 or float(seen["epsilon_spent"]) == pytest.approx(float(implied), 1e-9)
        let_pass(shop, "1 week")
    assert seen["epsilon_spent"] > 2


def test_a_question_and_a_refusal_through_the_server(shop: Any) -> None:
    grant(shop, "1.5, 1e-6, budget_window => '1 month'")
    bob = shop.connect(user="bob")
    first = bob.execute(COUNT, (1,)).fetchone()
    with pytest.raises(psycopg.Error) as caught:
        bob.execute(COUNT, (2,))
    end = f"{budgets(bob)['window_end'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    diag = caught.value.diag
    assert diag.sqlstate == "PD001"
    assert diag.message_detail == (
        "The question costs epsilon = 1 and delta = 0; left are epsilon = 0.5 and"
        f" delta = 0.000001 in the window of 1 mon that ends at {end}."
    )
    assert diag.message_hint == (
        "Ask with at most dp.epsilon = 0.5, wait for the next window, which begins at"
        f" {end}, or ask the owner for more budget; answers that are stored stay free."
    )
    let_pass(shop, "32 days")
    assert bob.execute(COUNT, (1,)).fetchone() == first, "stored answers stay free"
    assert budgets(bob)["window_spends"] == 0
    assert bob.execute(COUNT, (2,)).fetchone()


def test_recorded_losses_belong_to_the_window_in_which_they_were_entered(shop: Any) -> None:
    grant(shop, "3, 1e-6, budget_window => '1 day'")
    bob = shop.connect(user="bob")
    shop.sql("select dp.record_loss('bob', null, 2.5, 0, 'a backup lost it')")
    with pytest.raises(psycopg.Error) as caught:
        bob.execute(COUNT, (1,))
    assert "left are epsilon = 0.5" in caught.value.diag.message_detail
    let_pass(shop, "1 day")
    bob.execute(COUNT, (1,))
    assert budgets(bob)["epsilon_spent"] == Decimal("3.5")


def test_charges_at_the_boundary_fall_into_one_window_each(shop: Any) -> None:
    """Two sessions ask until the window is used up, and all the time while it ends."""
    grant(shop, "7, 1e-6, budget_window => '1 hour'")
    sessions = [shop.connect(user="bob") for _ in range(2)]
    count = "select count(*) from dp.spend where role_name = 'bob'"
    stop = threading.Event()

    def hammer(bob: Any, start: int, until_refused: bool) -> None:
        for n in itertools.count(start):
            if stop.is_set():
                return
            if say(bob, COUNT.replace("%s", str(n))).startswith("PD001"):
                if until_refused:
                    return
                time.sleep(0.02)

    def both(until_refused: bool) -> list[threading.Thread]:
        first = 10**6 if until_refused else 10**7
        threads = [
            threading.Thread(target=hammer, args=(bob, first * k, until_refused))
            for k, bob in enumerate(sessions, 1)
        ]
        for thread in threads:
            thread.start()
        return threads

    for thread in both(until_refused=True):
        thread.join()
    assert shop.sql(count) == [(7,)]
    end = budgets(sessions[0])["window_end"]
    length = int((end - datetime.now(UTC)).total_seconds()) - 2
    let_pass(shop, f"{length} seconds")
    threads = both(until_refused=False)
    try:
        wait_until(lambda: shop.sql(count)[0][0] >= 14)
        time.sleep(1)  # for one too many
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    spends = shop.sql("select at >= %s, count(*) from dp.spend where role_name = 'bob'"
                      " group by 1 order by 1", end - timedelta(seconds=length))  # fmt: skip
    assert spends == [(False, 7), (True, 7)]


def test_owners_are_warned_of_windows_without_caps(shop: Any) -> None:
    warning = "a budget for each window bounds no loss in the long run"
    (told,) = [s for s in grant(shop, "1, 1e-9, budget_window => '1 month'") if s[0] == "WARNING"]
    assert told == (
        "WARNING",
        warning,
        "Relations without a cap on epsilon: public.client, public.purchase.",
    )
    said: list[tuple[str, str]] = []
    with shop.connect(user="owner1") as owner:
        owner.add_notice_handler(lambda d: said.append((d.message_primary, d.message_detail or "")))
        owner.execute("select dp.set_root_cap('client', 10), dp.set_root_cap('purchase', 10)")
        assert said == []
        owner.execute("select dp.set_root_cap('client', null)")
        assert said == [(warning, "Relations without a cap on epsilon: public.client.")]
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.set_root_cap('client', 10)")
    assert all(s[0] != "WARNING" for s in grant(shop, "2, 1e-9, budget_window => '1 month'"))
    assert all(s[0] != "WARNING" for s in grant(shop, "2"))


def test_replacing_a_grant_tells_both_windows(shop: Any) -> None:
    grant(shop, "1, budget_window => '1 month'")
    (told,) = [s for s in grant(shop, "2, budget_window => '1 week'") if "replaced" in s[1]]
    assert told[2] == (
        "Before: epsilon = 1, delta = 0.0000001, basic composition, for each window of 1 mon; now:"
        " epsilon = 2, delta = 0.0000001, basic composition, for each window of 7 days."
    )
    (told,) = [s for s in grant(shop, "2") if "replaced" in s[1]]
    assert told[2].endswith("now: epsilon = 2, delta = 0.000001, basic composition.")


@pytest.mark.parametrize(
    "length", ["0", "-1 month", "1 month -1 day", "59 minutes", "101 years", "1 day -1 hour"]
)
def test_lengths_that_mean_nothing_are_refused(shop: Any, length: str) -> None:
    with shop.connect(user="owner1") as owner, pytest.raises(psycopg.Error) as caught:
        owner.execute(f"select dp.grant_budget('bob', 1, budget_window => '{length}')")
    assert caught.value.sqlstate == "PD040"
    assert caught.value.diag.message_primary == (
        'parameter "budget_window" of dp.grant_budget must be from 1 hour to 100 years'
    )
    assert shop.sql("select count(*) from dp.budgets where role = 'bob'") == [(0,)]
