"""A study is a file: the variables, the sites and the analyses, agreed on before anything leaves a site.

variables   the columns that every site's table has
analysis    one model to fit
schema      what a study file may say, and what a design each analysis gives
drafting    a first draft from what sites tell of their tables
writing     a study as a TOML file with comments
checking    what of a site's table does not fit a study
foresight   what a site's own rules would refuse of it
approval    which studies a site has approved
consent     what a site answers by that, and what a server tells the sites of a study
release     a site's word that a fit may go on without it
"""

from cofed.studies.analysis import Analysis
from cofed.studies.approval import approve, approved, approved_studies, outside_approved, withdraw
from cofed.studies.checking import TableCheck, check
from cofed.studies.consent import StudyConsent, invitation_to
from cofed.studies.drafting import Draft, draft, draft_of_times
from cofed.studies.foresight import check_rules, check_sites
from cofed.studies.planned_steps import PlannedStep
from cofed.studies.release import read_release, require_own_key, write_release
from cofed.studies.schema import Study, StudyError, load
from cofed.studies.variables import Variable
from cofed.studies.writing import to_toml, write

__all__ = [
    "Analysis",
    "Draft",
    "PlannedStep",
    "Study",
    "StudyConsent",
    "StudyError",
    "TableCheck",
    "Variable",
    "approve",
    "approved",
    "approved_studies",
    "check",
    "check_rules",
    "check_sites",
    "draft",
    "draft_of_times",
    "invitation_to",
    "load",
    "outside_approved",
    "read_release",
    "require_own_key",
    "to_toml",
    "withdraw",
    "write",
    "write_release",
]
