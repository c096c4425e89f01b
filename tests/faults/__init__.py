"""Commands that meet with faults at random moments: `make faults`, or `python -m tests.faults`."""
