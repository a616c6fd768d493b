"""Fits and study files: a study says what to fit, and a fit without one drafts it."""

from pathlib import Path

from cofed._util import naming
from cofed.fitting.plan import FitPlan
from cofed.fitting.tables import FitTables, PreparedFit
from cofed.sites import TableInfo, TableMismatch, read_sites
from cofed.studies import Analysis, Study, check, draft, load

LEVEL = 0.95  # of a study's intervals


def prepare_study(path: Path, data: Path, analysis: str | None = None) -> PreparedFit:
    """Read a study and the tables that it is about, and refuse what does not fit together.

    Parameters
    ----------
    path : Path
        The study file.
    data : Path
        A folder with a table per site.
    analysis : str, optional
        Which of its analyses; not needed where there is one.

    Returns
    -------
    PreparedFit
        What to fit.
    """
    study = load(path)
    one = chosen_analysis(study, path, analysis)
    tables = read_sites(data)
    wanted = [site.name for site in study.sites] or list(tables)
    absent = [site for site in wanted if site not in tables]
    if absent:
        raise ValueError(f"{data} has no table of the site {naming.listed(absent)}, which the study {path} names")
    tables = {site: tables[site] for site in sorted(wanted, key=naming.natural)}
    findings = [finding for table in tables.values() for finding in check(study, table).findings]
    if findings:
        raise TableMismatch(findings)
    plan, design = plan_of(one), study.design(one)
    columns = [feature.name for feature in design.features]
    others = {"event": one.event, "entry": one.entry, "responses": one.responses}
    choice = FitTables(data, one.target, columns, missing=one.missing, **others)
    infos = {site: table.info(study.markers) for site, table in tables.items()}
    return PreparedFit(plan, choice, tables, infos, design, study)


def chosen_analysis(study: Study, path: Path, name: str | None) -> Analysis:
    """The analysis of a study that a user has named, or the only one."""
    names = [one.name for one in study.analyses]
    if name is None and len(names) != 1:
        known = naming.listed(names) if names else "none"
        raise ValueError(f"{path} has {len(names)} analyses ({known}); give --analysis with the name of one")
    return study.analysis(name or names[0])


def plan_of(analysis: Analysis) -> FitPlan:
    """What an analysis of a study fits."""
    one, level = analysis, LEVEL if analysis.intervals else None
    usual = "hc1" if level is not None and one.takes_robust_errors else "model"
    return FitPlan(
        one.family,
        one.penalty,
        one.l1_ratio,
        one.alpha,
        one.cv,
        one.select,
        level,
        one.seed,
        one.errors or usual,
        one.class_weight,
        one.site_effects,
        group=one.group,
        measure=one.measure or "deviance",
        penalty_factor=one.penalty_factor,
        low=one.low,
        high=one.high,
        steps=one.steps,
    )


def drafted(ready: PreparedFit) -> Study:
    """The study that a fit without one would be, over the columns that it uses."""
    plan, choice = ready.plan, ready.choice
    used = {choice.target, *choice.roles, *(choice.features or ())}

    def columns(info: TableInfo) -> TableInfo:
        labels = {choice.group, choice.cluster}  # need not be variables
        named = [column for column in info.columns if column.name not in labels]
        kept = [column for column in named if choice.features is None or column.name in used]
        return TableInfo(rows=info.rows, columns=tuple(kept))

    infos = {site: columns(info) for site, info in ready.infos.items()}
    study = draft(infos, choice.predicted, plan.family, f"{choice.target}").study  # type: ignore[arg-type]
    settings = {
        "penalty": plan.penalty,
        "l1_ratio": plan.l1_ratio,
        "alpha": plan.alpha,
        "cv": plan.folds,
        "select": plan.select,
        "intervals": plan.level is not None,
        "missing": choice.missing,
        "seed": plan.seed,
        "weight": choice.weight,
        "offset": choice.offset,
        "class_weight": plan.class_weight,
        "site_effects": plan.site_effects,
        "group": plan.group,
        "measure": None if plan.measure == "deviance" else plan.measure,
        "errors": None if plan.level is None else plan.errors,
        **plan.per_feature,
    }
    one = study.analyses[0]
    if one.features is not None:
        ordered = one.features if choice.features is None else choice.features  # as the user has them
        settings["features"] = tuple(name for name in ordered if name not in choice.roles)
    return study.model_copy(update={"analyses": (one.model_copy(update=settings),)})
