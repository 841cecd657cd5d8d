"""Settings of all tests."""

import signal
import threading

# A shell that starts the tests in the background, or nohup, lets them ignore these signals, and
# with them every process that they start and then interrupt. Handlers are not passed on.
if threading.current_thread() is threading.main_thread():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
