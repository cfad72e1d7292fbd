#!/bin/sh
# Makes a base image from Debian packages alone, without any registry: images/debian.sh [TAG]. As root, on Debian.
set -eu
tag=${1:-team-debian:bookworm}
if ! command -v debootstrap >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=git,ca-certificates,python3,socat,procps bookworm "$root" >"$root.log" 2>&1 || {
    tail -n 3 "$root.log" >&2
    echo "debootstrap failed; its output is in $root.log" >&2
    exit 1
}
rm -rf "$root.log" "$root"/var/cache/apt/archives/*.deb "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/* \
    "$root"/var/log/*.log "$root"/usr/share/doc/* "$root"/usr/share/locale/* "$root"/usr/share/man/*
# Not the machine's own names and resolvers.
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
tar -C "$root" --numeric-owner --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . |
    docker import --change 'CMD ["/bin/bash"]' - "$tag" >/dev/null
echo "made the base image $tag"
