"""`python -m thermocline_fleet`."""

import sys

from thermocline_fleet._cli import main

sys.exit(main())
