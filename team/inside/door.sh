# The way from a container to its door; read by `entry` and `rescue`. POSIX sh, git, socat and coreutils only.
# shellcheck shell=sh

: "${HOME:=/home/agent}"
: "${TEAM_UPSTREAM:=/upstream}"
: "${TEAM_WORKSPACE:=/workspace}"
: "${TEAM_DOOR:=http://127.0.0.1:8787}"
: "${TEAM_PROMPT:=/run/team/prompt.md}"
: "${TEAM_TOKEN:=}"
: "${TEAM_PROXY:=}"
# Empty where sockets cannot be mounted: then TEAM_DOOR is reached by TCP, with TEAM_TOKEN.
TEAM_DOOR_SOCKET=${TEAM_DOOR_SOCKET-/run/team/door.sock}

say() {
    printf 'team: %s\n' "$*"
}

# fail CODE MESSAGE... and what a command printed, on standard input or not, line by line
fail() {
    code=$1
    shift
    printf '%s\n' "$*" | sed 's/^/team: /'
    exit "$code"
}

# Loopback to the socket, and to that of the proxy where the session has a network.
open_relay() {
    [ -n "$TEAM_DOOR_SOCKET" ] || return 0
    relay 8787 "$TEAM_DOOR_SOCKET"
    [ -z "$TEAM_PROXY" ] || relay 8788 "${TEAM_DOOR_SOCKET%/*}/proxy.sock"
}

# relay PORT SOCKET. Agents clean up ports and kill what they do not know: the relay comes back.
relay() {
    while :; do
        socat "TCP-LISTEN:$1,bind=127.0.0.1,reuseaddr,backlog=128,fork" "UNIX-CONNECT:$2"
        sleep 0.2
    done </dev/null >/dev/null 2>&1 &
}

# tell PATH BODY: POST to the door; waits until the relay listens. Fails unless the answer is 2xx.
tell() {
    if [ -z "$TEAM_DOOR_SOCKET" ]; then
        "${TEAM_PYTHON:-python3}" -I -c '
import os, sys, urllib.request as r
token = {"Authorization": "Bearer " + os.environ["TEAM_TOKEN"]}
r.build_opener(r.ProxyHandler({})).open(r.Request(sys.argv[1], sys.argv[2].encode(), token), timeout=30)
' "$TEAM_DOOR$1" "$2" 2>/dev/null
        return
    fi
    # shut-none: a server that sees the half-closed connection of `printf | socat` may drop it unanswered.
    answer=$(printf 'POST %s HTTP/1.1\r\nHost: door\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
        "$1" "${#2}" "$2" | socat -t 30 - TCP:127.0.0.1:8787,retry=100,interval=0.05,shut-none 2>/dev/null)
    case $answer in
    'HTTP/1.1 2'*) return 0 ;;
    *) return 1 ;;
    esac
}

# What holds for every repository of this container. Appended: an image may bring settings of its own.
configure_git() {
    printf '%s\n' '[safe]' 'directory = *' '[push]' 'default = current' '[pull]' 'rebase = false' \
        '[gc]' 'auto = 0' '[maintenance]' 'auto = false' '[init]' 'defaultBranch = main' \
        '[advice]' 'detachedHead = false' '[branch]' 'autoSetupMerge = inherit' \
        '[user]' 'useConfigOnly = true' '[core]' 'fsmonitor = false' \
        "[http \"$TEAM_DOOR\"]" 'proxy =' >>"$HOME/.gitconfig"
    [ -n "$TEAM_DOOR_SOCKET" ] ||
        printf '%s\n' "extraHeader = Authorization: Bearer $TEAM_TOKEN" >>"$HOME/.gitconfig"
}
