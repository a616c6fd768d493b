"""Sums over sites of which nobody sees the parts: answers as wide integers, under masks that cancel in the sum."""
