"""What can be said beforehand of undeclared groups and bounds, and idle settings: public facts.

Groups are shown only above a private threshold, usually few or none, and the question is
charged all the same (PRIVACY.md section 6); a person should know that before paying.
"""

from __future__ import annotations

from dpsql.core.mechanisms.drawing import units_needed
from dpsql.engine.expected import bias
from dpsql.engine.groups import most_groups
from dpsql.engine.methods.units import USUAL
from dpsql.engine.price import Quote
from dpsql.engine.request import Settings
from dpsql.model import Question
from dpsql.sqltree import literal

#: Sums of a unit that are so many times the smallest bound that can be drawn are nothing unusual.
_TIMES = 10_000


def describe_threshold(quote: Quote) -> str:
    """Say which noisy count a group must have at least to be shown.

    The threshold that will be used is for the drawn bound of the sensitivity, which is at
    least 1; what is told is that of 1, a function of the privacy parameters.
    """
    seen = [v for a in quote.aggregates if (v := a.mechanism.visibility) is not None]
    what, more = "count", ""
    for visibility in seen:
        what = "number of privacy units" if visibility.of_units else "count"
        if visibility.grows:
            whose = (
                "units are in many groups"
                if visibility.of_units
                else "one row can have many results"
            )
            more = f", or several times that where {whose}"
    least = min((visibility.least for visibility in seen), default=1)
    return f"A group is shown only if its noisy {what} is at least {least}{more}."


def warning(quote: Quote) -> tuple[str, str, str]:
    """Return message, detail and hint for somebody who will pay, told before the charge."""
    most = most_groups(quote.question)
    few = "" if most is None else f" At most {most} are, those with the largest such numbers."
    return (
        "the groups of this question are not public: most or all may be missing",
        f"{describe_threshold(quote)}{few} The question is charged all the same, unless it was"
        " answered already.",
        f"{remedy(quote.question)}. Groups that are columns of public relations need no"
        " declaration.",
    )


def remedy(question: Question) -> str:
    """Say what makes the groups of a question public: who asks can do it, or the owner."""
    hint = question.undeclared_domain_hint or ""
    if "dp.set_domain(" not in hint:
        return hint[:1].upper() + hint[1:]
    return f"The owner of the data can declare them: {hint}"


def unbounded(quote: Quote) -> tuple[str, str, str]:
    """Return message, detail and hint about sums and averages of values that only types bound."""
    names = quote.question.loose
    shares = [
        aggregate.epsilon_of_bound
        for aggregate in quote.aggregates
        if aggregate.query.weights
        and aggregate.query.weights[0].loose
        and aggregate.epsilon_of_bound
    ]
    needed = max((units_needed(_TIMES, share, USUAL) for share in shares), default=0)
    few = f"of fewer than about {needed} units" if needed else "of few units"
    return (
        f"no bounds are declared for the values of {', '.join(names)}",
        "What each privacy unit adds is cut off at a bound that is drawn. That is less sure than"
        f" bounds of the values: {few} nearly all can be cut off, and the answer be far too near"
        " to 0.",
        f"Give bounds: {names[0]}(value, lower, upper); or let the owner of the data declare the"
        " range of its columns: dp.set_domain(relation, column, lower, upper).",
    )


def misspelt(question: Question) -> tuple[str, str, str]:
    """Return message, detail and hint about texts that no declared domain lists."""
    told = ", ".join(f"{column} with {literal(text)}" for column, text in question.unlisted[:3])
    more = ", ..." if len(question.unlisted) > 3 else ""
    return (
        f"a condition compares {told}{more}: not among the declared values",
        "Rows may have it all the same, so that the question is charged and answered.",
        "SELECT relation_name, column_name, members FROM dp.domains shows the declared values.",
    )


def unjoined(quote: Quote) -> tuple[str, str, str] | None:
    """Return message, detail and hint where units meet without an equality that joins them."""
    for aggregate in quote.aggregates:
        query = aggregate.query
        whole = frozenset(range(len(query.occurrences)))
        parts = [
            part
            for part in query.shape().components(whole)
            if any(query.occurrences[i].attributes & set(query.units) for i in part)
        ]
        if len(parts) > 1:
            names = [query.occurrences[min(part)].relation.name for part in parts]
            return (
                "every combination of privacy units is looked at",
                f"No equality joins {names[0]} and {names[1]}. Combinations past what fits into"
                " memory (some 10 million) take seconds and fail after the charge.",
                "Join the relations by columns that they share.",
            )
    return None


def uncovered(quote: Quote) -> str | None:
    """Say what intervals do not cover, where a question shows them without saying so."""
    lost = dict.fromkeys(told for aggregate in quote.aggregates if (told := bias(aggregate)))
    if not lost:
        return None
    return f"dp_interval_low and dp_interval_high cover the noise alone: {'; '.join(lost)}"


def without_effect(quote: Quote, settings: Settings) -> str | None:
    """Name the settings that are for privacy units where rows alone are protected."""
    if any(aggregate.query.over_units for aggregate in quote.aggregates):
        return None
    usual = Settings()
    names = [
        f"dp.{name}"
        for name in ("max_rows_contributed", "max_groups_contributed", "max_contribution")
        if getattr(settings, name) != getattr(usual, name)
    ]
    if not names:
        return None
    have = "has" if len(names) == 1 else "have"
    return (
        f"{', '.join(names)} {have} no effect: the relations of the question are protected row by"
        " row, and nothing is cut off"
    )
