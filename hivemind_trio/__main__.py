"""`python -m hivemind_trio` and the `hivemind-trio` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from .cli import run

    run()


if __name__ == "__main__":
    main()
