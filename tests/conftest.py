"""Settings of all tests."""

import signal
import threading

# A shell that starts the tests in the background lets them ignore Ctrl-C, and with them every
# process that they start and then interrupt.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
