"""Python loads this file at the start of every process whose PYTHONPATH has its folder; `moments.py` of the tests sets that up.

The variable MOMENT, `event name number deed`, chooses the number-th time (counted in each process) that a file of that name is
about to be opened for writing, renamed or removed; then the deed is done, in whichever process it is: kill-all ends the process
group at once, kill-one this process alone, interrupt is Ctrl-C in a terminal, and this process then does nothing more until it is
ended. ONCE is a file that keeps the deed from being done twice. ABSENT names a module that is not there.
"""

import os
import signal
import sys
import time

if os.environ.get("ABSENT"):
    sys.modules[os.environ["ABSENT"]] = None

if os.environ.get("MOMENT"):
    EVENT, NAME, NUMBER, DEED = os.environ["MOMENT"].split()
    seen = 0

    def is_it(event, args):
        if event != EVENT:
            return False
        if event == "open":
            path, mode, _ = args  # a file may be opened by its number, too
            writes = isinstance(mode, str) and mode[:1] in ("w", "a") and not isinstance(path, int)
            return writes and NAME in os.path.basename(os.fsdecode(path))
        return os.path.basename(os.fsdecode(args[1 if event == "os.rename" else 0])) == NAME

    def hook(event, args):
        global seen
        if is_it(event, args):
            seen += 1
            if seen == int(NUMBER):
                act()

    def act():
        once = os.environ.get("ONCE")
        try:
            if once:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if DEED == "kill-all":
            os.killpg(0, signal.SIGKILL)
        elif DEED == "kill-one":
            os.kill(os.getpid(), signal.SIGKILL)
        os.killpg(0, signal.SIGINT)
        while True:
            time.sleep(1)

    sys.addaudithook(hook)
