"""What can be said beforehand of what nobody declared, groups and bounds: public facts only.

Groups are shown only above a private threshold, usually few or none, and the question is
charged all the same (PRIVACY.md section 6); a person should know that before paying.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.core.mechanisms.threshold import Threshold, cutoff
from dpsql.core.mechanisms.truncation import Quantile
from dpsql.engine.groups import most_groups
from dpsql.engine.price import Quote
from dpsql.model import Question


def describe_threshold(quote: Quote) -> str:
    """Say which noisy count a group must have at least to be shown.

    The threshold that will be used is for the drawn bound of the sensitivity, which is at
    least 1; what is told is that of 1, a function of the privacy parameters.
    """
    found = []
    more = ""
    what = "count"
    for plan in (aggregate.plan for aggregate in quote.aggregates):
        if isinstance(plan, Threshold):
            found.append(cutoff(1, plan.epsilon_value, plan.delta_threshold))
            if plan.inner is not None:
                more = ", or several times that where one row can have many results"
        elif isinstance(plan, Quantile) and plan.delta_threshold is not None:
            least = cutoff(plan.bounds[0], plan.epsilon_value, plan.delta_threshold, each=1)
            found.append(max(least, plan.least))
            what = "number of privacy units"
            if len(plan.bounds) > 1:
                more = ", or several times that where units are in many groups"
    least = min(found, default=1)
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


def unbounded(names: Sequence[str]) -> tuple[str, str, str]:
    """Return message, detail and hint about averages of values that only their types bound."""
    return (
        f"no bounds are declared for the values of {', '.join(names)}",
        "What each privacy unit adds is cut off at a bound that is drawn. That is less sure than"
        " bounds of the values, and of few units the answer can be far outside what is possible.",
        f"Give bounds: {names[0]}(value, lower, upper); or let the owner of the data declare the"
        " range of its columns: dp.set_domain(relation, column, lower, upper).",
    )
