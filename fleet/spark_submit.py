"""The program for spark-submit: see docs/guide/fleet.md."""

import sys

from thermocline_fleet._cli import main

sys.exit(main())
