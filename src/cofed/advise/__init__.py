"""`cofed advise`: one model for all sites, a model each, or something between, from a table of the sites' data."""
