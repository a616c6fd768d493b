"""How many threads linear algebra takes."""

import functools
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


@functools.cache
def libraries() -> ThreadpoolController:
    """The libraries of this process that have threads: looked for once, as that takes a while."""
    import scipy.linalg  # noqa: F401  # whose LAPACK is also JAX's: what is not loaded yet is not found

    return ThreadpoolController()


def one_thread() -> AbstractContextManager:
    """Within it NumPy's and SciPy's linear algebra takes one thread.

    For many small systems: several threads wait for one another longer than they work, ten times longer where others
    use the machine too.

    >>> from cofed._util.threads import libraries, one_thread
    >>> with one_thread():
    ...     sorted({one["num_threads"] for one in libraries().info() if one["user_api"] == "blas"})
    [1]
    """
    return libraries().limit(limits=1, user_api="blas")
