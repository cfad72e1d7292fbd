"""`python3 -m abacus COMMAND WORDS...`"""

import sys

from abacus import menu

if len(sys.argv) < 2:
    sys.exit("usage: python3 -m abacus COMMAND WORDS...; commands: " + ", ".join(menu.COMMANDS))
print(menu.run(sys.argv[1], sys.argv[2:]))
