#!/usr/bin/env bash
# naive_claims.sh for work in files of one's own. naive_work.sh CLONE NAME STOP
set -u
cd "$1" || exit 1
mkdir -p "src/$2"
n=0
while [ ! -e "$3" ]; do
    n=$((n + 1))
    echo "$n" >"src/$2/file_$((n % 20))"
    git add "src/$2"
    git commit --quiet --message "Work $n of $2"
    until [ -e "$3" ]; do
        git pull --quiet --rebase origin main || git rebase --abort
        git push --quiet origin HEAD:main && break
    done
done >/dev/null 2>&1
