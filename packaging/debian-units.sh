#!/usr/bin/env bash
# Writes the units of the Debian packages to a folder, under the names that debhelper expects.
# Usage: packaging/debian-units.sh FOLDER
#
# The units of packaging/systemd are for programs in /usr/local and users that exist only while a service
# runs. The packages have users of their own, so that their files keep an owner and a group may use the
# socket.
set -euo pipefail
to=$(realpath "$1")
cd "$(dirname "$0")/systemd"

unit() { # UNIT PACKAGE USER
    sed -e "s|/usr/local/bin/|/usr/bin/|; s|^DynamicUser=yes|User=$3\nGroup=$3|" "$1" >"$to/$2"
}
unit thermo-agent.service thermocline.thermo-agent.service thermo
unit thermo-agent.socket thermocline.thermo-agent.socket thermo
unit thermo-lifecycle.service thermocline.thermo-lifecycle.service thermo
unit thermo-upload.service thermo-upload.service thermo
sed -i '/^User=thermo-agent$/d' "$to/thermo-upload.service"
unit thermo-nbd.service thermo-nbd.service thermo-nbd
unit thermo-nbd.socket thermo-nbd.socket thermo-nbd
sed -i 's|^SocketMode=.*|&\nSocketGroup=thermo|' "$to/thermocline.thermo-agent.socket"
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-agent|' "$to/thermocline.thermo-agent.service"
sed -i 's|^NoNewPrivileges=yes|&\nAppArmorProfile=-thermo-nbd|' "$to/thermo-nbd.service"
