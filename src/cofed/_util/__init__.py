"""Small helpers that every room may use, and that know no room."""
