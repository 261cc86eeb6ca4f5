"""First run: setup, the checks of `speclsp doctor`, the demonstration, and the trial of prompt orders."""
