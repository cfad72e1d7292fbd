#!/usr/bin/env bash
# An agent that claims with `team claim`. helper_claims.sh CLONE NAME STOP, as push_claims.sh.
set -u
cd "$1" || exit 1
n=0
while [ ! -e "$3" ]; do
    n=$((n + 1))
    team claim "$2_$n" --note "what $2 does" >/dev/null 2>"$1.last" || {
        [ -e "$3" ] || cat "$1.last" >>"$1.refused"
    }
done
