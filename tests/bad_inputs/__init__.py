"""A generated table of bad inputs: every public callable, every parameter, every odd value.

    python -m tests.bad_inputs              counts, and what went wrong
    python -m tests.bad_inputs regularizers the same for one part

It starts from a call that works (`calls.py`), replaces one argument at a time by each odd value (`values.py`), and asks
the parameter's kind (`kinds.py`) whether that value may be accepted. `judge.py` says how each case ended:

- refused: an error of ours, raised in cofed's own code, in words that name the parameter
- right: accepted, and the kind says that it may be
- raw: an error of another library, or one that does not name the parameter
- silent: accepted, although the kind says that it is wrong

Commands have a table of their own (`commands.py`), and so have files (`files.py`). All of it runs in a process of its
own, without the runtime type checks of the other tests (a user has none), with a limit on memory and on time.
"""
