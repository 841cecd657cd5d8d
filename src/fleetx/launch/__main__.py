"""`python -m fleetx.launch`: the same as the command `fleetrun`."""

from fleetx.launch.fleetrun import main

raise SystemExit(main())
