"""`python -m fleetx`: the same as the command `fleetx`."""

from fleetx.cli import main

raise SystemExit(main())
