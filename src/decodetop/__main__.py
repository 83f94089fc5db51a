"""Where the process begins: Ctrl-C at any moment ends it with 130 and no traceback."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command line. Importing it takes a while, in which nothing is to be tidied up."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else started to ignore it: by nohup, by &
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    from decodetop.cli import main as command

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return command()
    finally:
        if heeded:
            signal.signal(signal.SIGINT, _leave)  # the last word is printed: what is left is Python's own tidying


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
