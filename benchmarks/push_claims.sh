#!/usr/bin/env bash
# An agent that claims by plain git. push_claims.sh CLONE NAME STOP: counts refused pushes in the file CLONE.refused.
set -u
cd "$1" || exit 1
n=0
while [ ! -e "$3" ]; do
    n=$((n + 1))
    echo "$2" >"current_tasks/$2_$n.txt"
    git add "current_tasks/$2_$n.txt"
    git commit --quiet --message "Claim $2_$n"
    git push --quiet >/dev/null 2>"$1.last" || {
        [ -e "$3" ] || cat "$1.last" >>"$1.refused"
    }
done
