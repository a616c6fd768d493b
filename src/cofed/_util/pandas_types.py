"""pandas' classes for annotations: themselves at run time, and anything to a type checker.

pandas ships no stubs, and from its source a checker concludes that every column may be a table as well.
"""

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    Frame = Series = Any
else:
    Frame, Series = pd.DataFrame, pd.Series
