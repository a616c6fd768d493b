"""Statistics of a federation: how different its clients are, and what a model costs on fresh samples.

Nothing is imported here: the engine uses single files of this room, and loads only these.
"""
