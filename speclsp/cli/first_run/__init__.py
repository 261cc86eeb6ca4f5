"""First run: setup, the checks of `speclsp doctor`, and the demonstration."""
