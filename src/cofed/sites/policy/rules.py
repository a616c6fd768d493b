"""The rules of a policy. Each says why a question is not answered, or notes in the ledger's draft that it was."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from cofed.sites.columns import Label, level_text
from cofed.sites.design import Feature, RowColumn
from cofed.sites.guard import Refusal
from cofed.sites.policy import points
from cofed.sites.policy.atoms import split
from cofed.sites.policy.bins import histograms
from cofed.sites.policy.case import Case
from cofed.sites.policy.ledger import ROWS, Ledger, TargetRecord
from cofed.sites.policy.life_tables import life_cells, told_times
from cofed.sites.policy.noise import noise
from cofed.sites.policy.schema import QuestionRules
from cofed.sites.policy.site_sets import masked, sites
from cofed.sites.policy.transformed import column_names, makes_new_sums, steps
from cofed.sites.queries import (
    ColumnsMessage,
    GramMessage,
    LookMessage,
    MeatMessage,
    PermutedMessage,
)
from cofed.sites.site_table import Part, parts, row_columns

Rule: TypeAlias = Callable[[Case], Refusal | None]
MOST_ROWS = 5000  # of a site whose rows' leverages are computed: with more, one row has little to say


def queries(case: Case) -> Refusal | None:
    """Whether the query is one that the site answers, with names that are short enough."""
    allowed, name = case.policy.questions.queries, case.asked.question.query.name
    if "*" not in allowed and name not in allowed:
        return Refusal("queries", f"the query {name} is not among those of questions.queries: {', '.join(allowed)}")
    longest = max((len(text) for text in texts(case)), default=0)
    if longest > case.policy.questions.text:
        most = case.policy.questions.text
        return Refusal("text", f"the question has a text of {longest} characters; {most} may be (questions.text)")
    return None


def texts(case: Case) -> Iterator[str]:
    """All texts of a question's design."""
    design = case.asked.design
    for feature in design.features:
        yield from (feature.name, *(feature.levels or ()), *map(level_text, feature.markers))
    for step in design.steps:
        yield from step.outputs
    for column in row_columns(design):
        yield from (column.name, *map(level_text, column.markers))
    if design.target is not None:
        yield from (one.name for one in design.target.columns)
        yield from map(level_text, (*(design.target.classes or ()), *design.target.markers))


def exchanges(case: Case) -> Refusal | None:
    """Whether the site has answered enough for today, or for good. The same question again is free."""
    return None if case.is_known else answered_enough(case.ledger, case.policy.questions, case.day)


def answered_enough(ledger: Ledger, rules: QuestionRules, day: str) -> Refusal | None:
    """Whether no more questions are answered on this day; where one is, it is counted."""
    today, all_days = ledger.days.get(day, 0), sum(ledger.days.values())
    if today >= rules.per_day or all_days >= rules.in_all:
        return Refusal(
            "exchanges",
            f"{today} questions were answered today and {all_days} in all; allowed are {rules.per_day} a day "
            f"(questions.per_day) and {rules.in_all} in all (questions.in_all)",
        )
    ledger.days[day] = today + 1
    return None


def failures(case: Case) -> Refusal | None:
    """Whether the study has failed so often for reasons that the rows' values have to do with.

    Each time the server learns that some site failed, and so a little about the rows.
    """
    most, found = case.policy.questions.failures, case.ledger.failures.get(case.study, 0)
    if found < most:
        return None
    why = f"{found} questions of this study were refused silently, for reasons that the rows' values have to do with"
    return Refusal("failures", f"{why}; after {most} nothing is answered: look into it, then raise questions.failures")


def rows(case: Case) -> Refusal | None:
    """Whether the site, each fold, and each level and class has enough rows."""
    least = case.policy.rows
    if case.rows < least.site:
        return Refusal("rows", f"the question is about {case.rows} rows here; {least.site} must be (rows.site)")
    if case.message.folds is not None:
        sizes_here = np.bincount(case.fold + 1)  # the first of those that are left out
        smallest = int(sizes_here[sizes_here > 0].min())
        if smallest < least.fold:
            why = f"with {case.message.n_folds} folds, one has {smallest} rows here"
            return Refusal("folds", f"{why}; at least {least.fold} must be (rows.fold): use fewer folds")
    return cells(case)


def cells(case: Case) -> Refusal | None:
    """Whether a level of a factor, a class, or one of two numbers stands for too few rows."""
    least, keep = case.policy.rows.cell, case.asked.kept
    for part in parts(case.asked.design):
        column = case.asked.table.read(part.name, part.markers)
        levels = levels_of(part)
        if levels is not None:
            codes = column.codes(levels)[keep]
            counts = np.bincount(codes[codes >= 0], minlength=len(levels))
        else:
            values = column.values[keep & ~column.missing]
            levels, counts = two_values(values)
        if (rare := counts[counts > 0].min(initial=least)) < least:
            level = level_text(levels[int(np.argmax(counts == rare))])
            return Refusal(
                "cells",
                f"the column {part.name!r} is {level!r} in {rare} of the rows; each level must be in {least} "
                "(rows.cell): take levels together, or leave the column out",
                counts_rows=True,
            )
    return None


def levels_of(part: Part) -> Sequence[Label] | None:
    """The levels or classes of a column that has some."""
    if isinstance(part, RowColumn):
        return None
    return part.levels if isinstance(part, Feature) else part.classes


def weights(case: Case) -> Refusal | None:
    """Whether the rows' weights, or their differences to those of sums without weights, stand for too few rows."""
    weight = case.asked.rows.weight
    if weight is None:
        return None
    alike = float(weight.sum() ** 2 / (weight**2).sum())
    if alike < case.policy.rows.site:
        why = f"by their weights the rows count as {alike:.3g} alike; {case.policy.rows.site} must (rows.site)"
        return Refusal("weights", why, is_silent=True)
    spread = weight - weight.mean()
    square = float((spread**2).sum())
    # Of all sums of the rows' numbers times a + b weight, the one that is most about a single row.
    most = 1 / len(weight) + (float((spread**2).max()) / square if square > 0 else 0.0)
    least = case.policy.points.dominance
    if 1 / most < least:
        why = f"sums with and without weights differ as those of {1 / most:.3g} rows"
        return Refusal("weights", f"{why}; {least:g} must share the difference (points.dominance)", is_silent=True)
    return None


def clusters(case: Case) -> Refusal | None:
    """Whether products of the sums of clusters would be about too few of them: each counts as a row then."""
    cluster, least = case.asked.rows.cluster, case.policy.rows.site
    if cluster is None or not isinstance(case.message, MeatMessage) or not case.message.clustered:
        return None
    found = len(np.unique(cluster))
    if found >= least:
        return None
    return Refusal("clusters", f"the rows here are of {found} clusters; {least} there must be (rows.site)")


def two_values(values: np.ndarray) -> tuple[list[Label], np.ndarray]:
    """The values of a column that has two, and how often each is there; nothing for all others."""
    first = values[:1]
    others = values[values != first] if len(first) else first
    if not len(others) or (others != others[0]).any():
        return [], np.zeros(0, int)
    return [first[0], others[0]], np.array([len(values) - len(others), len(others)])


def row_sets(case: Case) -> Refusal | None:
    """Whether some combination of this and earlier answers would stand for too few rows."""
    ledger, least = case.ledger, case.policy.rows.atom
    place, kept = case.places, case.asked.kept
    part = np.zeros(len(ledger.ids), np.int64)
    part[place[kept]] = case.fold + 1
    wanted = {ROWS: part}
    known = [kind for kind in ledger.labels if kind != ROWS]
    asked = {one.name for one in parts(case.asked.design)}
    wanted |= {name: part for name in known if name in asked}
    for name, missing in gaps(case):
        there = part.copy()
        there[place[missing]] = 0
        wanted[name] = there
    for kind, sets in wanted.items():
        ledger.labels[kind], sizes = split(ledger.atoms(kind), sets)
        if sizes.min(initial=least) < least:
            about = "" if kind == ROWS else f" with a value of {kind!r}"
            return Refusal(
                "row sets",
                f"together with what was answered before, the answer would stand for {sizes.min()} rows alone{about}; "
                f"sets of rows may differ by {least} rows or more (rows.atom): ask about the same rows and folds as "
                "before, or leave out more rows",
            )
    return None


def gaps(case: Case) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of which only the values that are there are summed, and where they are missing."""
    if case.asked.design.missing != "keep":
        return
    for feature in case.asked.design.features:
        missing = case.asked.table.read(feature.name, feature.markers).missing
        if missing.any():
            yield feature.name, missing


def columns(case: Case) -> Refusal | None:
    """Whether a column varies at enough sites of the sum, where they have counted that."""
    over, least = case.asked.over, case.policy.least_sites
    if over is None:
        return None
    for part in parts(case.asked.design):
        if over.varying.get(part.name, least) < least:
            at = over.varying[part.name]
            why = f"the column {part.name!r} varies at {at} of the sites, so that sums about it tell of these alone"
            return Refusal("columns", f"{why}; it must vary at {least}: leave the column out")
    return None


def parameters(case: Case) -> Refusal | None:
    """Whether products of columns are told for too many columns of too few rows."""
    message, record = case.message, case.record
    names = column_names(case)
    asked = {name for j in product_columns(case) for name in names[j]}
    told = record.columns | asked | told_times(case) | responses(case)
    most = int(case.policy.parameters.per_row * case.fold_rows)
    if len(told) > max(most, len(record.columns)):
        return Refusal(
            "parameters",
            f"products of {len(told)} columns{' and times' if told_times(case) else ''} would be told about "
            f"{int(case.fold_rows)} rows"
            f"{' of a fold' if message.n_folds > 1 else ''}; with {case.policy.parameters.per_row:g} columns per row "
            f"(parameters.per_row), {most} may be: ask for fewer columns or folds",
        )
    record.columns = frozenset(told)
    return None


def responses(case: Case) -> set[str]:
    """The columns that are predicted beside the first: sums of the features' products with each are told."""
    target = case.asked.design.target
    return set() if target is None else set(target.responses)


def product_columns(case: Case) -> np.ndarray:
    """The features of which products are told, as positions; the intercept is none."""
    message, p = case.message, len(case.asked.design.feature_names)
    match message:
        case GramMessage() | ColumnsMessage():
            found = np.asarray(message.where)
        case LookMessage():
            found = np.asarray(message.where).ravel() // np.shape(message.coef)[2]
        case MeatMessage():
            found = np.asarray(message.where) // np.shape(message.coef)[1]
        case _:
            found = np.zeros(0, int)
    if is_gram(case) or makes_new_sums(case):
        found = np.arange(p)
    return np.unique(found[found < p])


def is_gram(case: Case) -> bool:
    """Whether a question's points tell what the Gram matrix tells: their slopes are linear in the rows, and many."""
    message, p = case.message, len(case.asked.design.feature_names)
    if isinstance(message, PermutedMessage):  # products of different rows, which no Gram matrix tells
        return False
    return points.is_squared(message.loss) and 0 < p <= points.count_points(message)


def tells_gradients(case: Case) -> bool:
    """Whether sums of rows are told, each times what a model makes of it, and not the Gram matrix in other words."""
    return points.coefficients(case.message) is not None and not points.is_squared(case.message.loss)


def sizes(case: Case) -> Refusal | None:
    """Whether a model is so large that few rows decide what it tells, in the question's units or in the rows' own."""
    coef, most = points.models_of(case.message), case.policy.points.size
    if coef is None or points.is_squared(case.message.loss):
        return None
    size = np.abs(coef).sum(axis=0).max(initial=0)
    if case.message.scaling is not None and not size <= most:
        why = f"the absolute coefficients of a model add up to {size:.3g}; {most:g} is the most (points.size)"
        return Refusal("size", f"{why}: a larger model can be made to tell of single rows")
    spread = np.maximum(np.abs(case.X.mean(axis=0)), case.X.std(axis=0))
    size = (np.abs(coef) * spread[:, None]).sum(axis=0).max(initial=0)
    if not size <= 2 * most:  # the rows of one site may spread more than those of all
        why = f"in the units of this site's rows the absolute coefficients of a model add up to {size:.3g}"
        return Refusal("size", f"{why}; {2 * most:g} is the most (twice points.size)", is_silent=True)
    return None


def many_points(case: Case) -> Refusal | None:
    """Whether too many models are looked at, or models that differ in too many ways.

    A third as many points as there are rows cannot isolate a row, whatever the points. Beyond that, a grid of many
    rows may have more, as long as its points do not differ in more directions than that.
    """
    rules, record, honest = case.policy.points, case.record, case.honest_rows
    new = points.count_points(case.message)
    if case.is_known or not new or is_gram(case):
        return None
    before, record.points = record.points, record.points + new
    told = f"{before} points were told about this target, and {new} are asked for"
    few = int(rules.per_row * honest)
    if honest >= rules.grid_rows and rules.grid_per_row > rules.per_row and tells_gradients(case):
        new_ones = reference(case)
        if not np.isfinite(new_ones).all():
            return Refusal("size", "a model is so large that its slopes are not finite for usual rows")
        record.public = points.joined(record.public, new_ones)
    if record.points <= few:
        return None
    if honest < rules.grid_rows:
        why = f"of {honest} rows of all sites {few} may be (points.per_row)"
        return Refusal("points", f"{told}; {why}, and more only from {rules.grid_rows} rows on (points.grid_rows)")
    if record.points > int(rules.grid_per_row * honest):
        most = int(rules.grid_per_row * honest)
        return Refusal("points", f"{told}; of {honest} rows of all sites {most} may be (points.grid_per_row)")
    return too_many_directions(case, record)


def too_many_directions(case: Case, record: TargetRecord) -> Refusal | None:
    """Whether the points differ in too many ways to be those of a grid."""
    if record.public is None:
        return None
    found, share = points.directions(record.public), case.policy.points.grid_directions
    # Where there are more rows than reference rows, those count.
    most = int(share * len(record.public))
    if found <= most:
        return None
    return Refusal(
        "points",
        f"the points would differ in {found} directions, and {most} may be (points.grid_directions): ask for fewer "
        "strengths, or for points closer to a path",
    )


def reference(case: Case) -> np.ndarray:
    """What the question multiplies the reference rows with: as many as there were at the first such question."""
    record = case.record
    rows = min(case.honest_rows, points.MOST_REFERENCES) if record.public is None else len(record.public)
    return points.reference_multipliers(case.message, case.asked.design.feature_names, rows)


def own_rows(case: Case) -> Refusal | None:
    """Whether a row of this site is most of what a model tells, or can be isolated by combining models.

    Both depend on the rows' values, so nobody else hears of it.
    """
    rules, message = case.policy.points, case.message
    if case.is_known or not tells_gradients(case) or (rules.dominance <= 1 and rules.leverage >= 1):
        return None
    total = squares = np.zeros(())
    blocks = points.in_blocks(case.rows, points.count_points(message))
    for some in blocks if message.half_deviance.rowwise else (slice(None),):  # who is at risk depends on all rows
        block = case.multipliers(some)
        total, squares = total + np.abs(block).sum(axis=0), squares + (block**2).sum(axis=0)
    told = squares > 0
    least = float((total[told] ** 2 / squares[told]).min(initial=np.inf))
    if not least >= rules.dominance:
        why = f"a model's slopes are as those of {least:.3g} rows of this site"
        return Refusal("dominance", f"{why}; {rules.dominance:g} must share them (points.dominance)", is_silent=True)
    return leverage(case)


def leverage(case: Case) -> Refusal | None:
    """Whether combinations of all points so far isolate a row of this site among all rows."""
    rules, record = case.policy.points, case.record
    others = max(case.honest_rows - case.rows, 0)
    if rules.leverage >= 1 or case.rows > MOST_ROWS:
        return None
    mine = case.multipliers()
    count = min(others, points.MOST_REFERENCES)
    if count:
        far = points.reference_multipliers(case.message, case.asked.design.feature_names, count)
        mine = np.vstack([mine, far * np.sqrt(others / count)])
    place = case.places[case.asked.kept]
    mark = f"{len(mine)} {hashlib.sha256(place.tobytes()).hexdigest()}"
    record.own = points.joined(record.own if record.own_mark == mark else None, mine)
    record.own_mark = mark
    most = float(points.leverages(record.own)[: case.rows].max())
    if most <= rules.leverage:
        return None
    return Refusal(
        "leverage",
        f"combinations of the models would isolate a row of this site to {most:.2f}; {rules.leverage:g} is the most "
        "(points.leverage)",
        is_silent=True,
    )


# In this order: what is public and cheap comes first.
RULES: tuple[Rule, ...] = (
    *(masked, sites, queries, failures, exchanges, rows, weights, clusters, columns, row_sets),
    *(noise, steps, parameters, histograms, life_cells, sizes, many_points, own_rows),
)
