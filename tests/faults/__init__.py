"""Faults for runs of many processes: `inject/` brings them about, `harness` starts runs and tells what they came to."""
