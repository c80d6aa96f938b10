#!/usr/bin/env bash
# Writes the units of the Debian packages to a folder, under the names that debhelper expects.
# Usage: packaging/debian-units.sh FOLDER
#
# The units of packaging/systemd are for programs in /usr/local, and some for users that exist only while a
# service runs. In the packages each service has a user that stays, named as the service (sysusers.d).
set -euo pipefail
to=$(realpath "$1")
cd "$(dirname "$0")/systemd"

unit() { # UNIT FILE
    sed -e "s|/usr/local/bin/|/usr/bin/|; s|^DynamicUser=yes|User=${1%.*}\nGroup=${1%.*}|" "$1" >"$to/$2"
}
unit thermo-agent.service thermocline.thermo-agent.service
unit thermo-agent.socket thermocline.thermo-agent.socket
unit thermo-lifecycle.service thermocline.thermo-lifecycle.service
unit thermo-upload.service thermo-upload.service
unit thermo-nbd.service thermo-nbd.service
unit thermo-nbd.socket thermo-nbd.socket
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-agent|' "$to/thermocline.thermo-agent.service"
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-nbd|' "$to/thermo-nbd.service"
