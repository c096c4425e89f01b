"""`python -m cascader` is the command line."""

from cascader.cli import main

main()
