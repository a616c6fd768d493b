"""What of the sites' tables a fit is about, before they have agreed on it."""

import dataclasses
from collections.abc import Collection, Mapping

from cofed.sites.agreement import agree
from cofed.sites.columns import TableInfo
from cofed.sites.design import Design, Target


@dataclasses.dataclass(frozen=True)
class ChosenColumns:
    """What of the sites' tables a fit is about; see `cofed.sites.agree`."""

    target: str | Target | None = None
    features: tuple[str, ...] | None = None
    factors: Collection[str] = ()
    missing: str = "refuse"
    design: Design | None = None  # instead of all that
    weight: str | None = None  # the column of the rows' weights
    offset: str | None = None  # the column of what is added to their predictions
    group: str | None = None  # the column by which rows are in one fold
    cluster: str | None = None  # the column by which rows are related

    def as_json(self) -> dict[str, object]:
        """What tells one choice from another."""
        return {
            **dataclasses.asdict(self),
            "target": self.target.model_dump(mode="json") if isinstance(self.target, Target) else self.target,
            "design": None if self.design is None else self.design.model_dump(mode="json"),
        }

    def agreed(self, infos: Mapping[str, TableInfo], classify: bool | None = None) -> Design:
        """The design of all sites' tables."""
        if self.design is not None:
            if classify is not None and classify != (self.design.classes is not None):
                fixed, asked = ("a number", "a class") if classify else ("a class", "a number")
                raise ValueError(f"the study says that the target is {fixed}, and this fit predicts {asked}")
            return self.design
        how = {"factors": self.factors, "missing": self.missing}
        found = agree(infos, self.target, self.features, classify=classify, **how)
        return found.with_columns(self.weight, self.offset, self.group, self.cluster)
