#!/usr/bin/env bash
# The loop that agents write when nobody gives them a better one: pull --rebase, add a lock, commit, push, again if
# refused. naive_claims.sh CLONE NAME STOP: claims NAME_1, NAME_2 and so on until the file STOP exists.
set -u
cd "$1" || exit 1
n=0
while [ ! -e "$3" ]; do
    n=$((n + 1))
    lock=current_tasks/$2_$n.txt
    until [ -e "$3" ]; do
        git pull --quiet --rebase origin main || {
            git rebase --abort
            git reset --quiet --hard origin/main
        }
        if [ ! -e "$lock" ]; then
            echo "$2" >"$lock"
            git add "$lock"
            git commit --quiet --message "Claim $2_$n"
        fi
        git push --quiet origin HEAD:main && break
    done
done >/dev/null 2>&1
