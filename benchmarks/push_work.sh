#!/usr/bin/env bash
# An agent that lands work in files of its own. push_work.sh CLONE NAME STOP, as push_claims.sh.
set -u
cd "$1" || exit 1
mkdir -p "src/$2"
n=0
while [ ! -e "$3" ]; do
    n=$((n + 1))
    echo "$n" >"src/$2/file_$((n % 20))"
    git add "src/$2"
    git commit --quiet --message "Work $n of $2"
    git push --quiet >/dev/null 2>"$1.last" || {
        [ -e "$3" ] || cat "$1.last" >>"$1.refused"
    }
done
