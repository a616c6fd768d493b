"""Solvers: pooled baselines, penalised quadratics, Newton's method over all clients' models, second derivatives.

Nothing is imported here: algorithms and the engine use single files of this room, and load only these.
"""
