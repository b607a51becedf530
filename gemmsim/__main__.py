"""The program: `gemmsim`, and `python -m gemmsim`. Ready for Ctrl-C before the rest is even imported."""

import sys

from gemmsim.streams import INTERRUPTED, NOBODY_READS, prepare, say


def main() -> int:
    """Run the command that the program was started with; returns the exit status."""
    try:
        somebody_reads = prepare()
        from gemmsim import cli  # takes a while, NumPy above all

        status = cli.main()
        return status if somebody_reads or status else NOBODY_READS
    except KeyboardInterrupt:
        say("gemmsim: error: interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
