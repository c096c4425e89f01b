"""Fuzzing: thousands of bad inputs, each of which must end in an answer or in a sentence. `make fuzz` runs all of it.

A target (`targets/`) draws cases; a case prepares its input in a folder of its own and is performed there, watched by
a guard (`guard.py`) that sees what no case may do: write elsewhere, run code, send packets. Hypothesis draws the cases
and makes the input of a failure small (`engine.py`); processes of their own perform them, so that what hangs or
crashes ends alone (`workers.py`).
"""
