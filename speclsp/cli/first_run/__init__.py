"""First run: setup, the checks of `speclsp doctor`, the demonstration, and tuning for this machine."""
