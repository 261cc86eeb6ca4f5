"""`speclsp models`: the table of models, downloads, checks and removal."""
