"""`python -m soulsgraph`: the command, where the script of that name is not on the path."""

from soulsgraph.cli import main

if __name__ == "__main__":
    main()
