#!/usr/bin/env bash
# Makes the table of docs/reference/kernels.md from what doctor said on each kernel: docs/reference/kernels/NAME.json, one a column.
# Usage: scripts/kernels.sh [--check]
#
# --check                changes nothing, and fails where the page does not say what the files do
#
# To take them anew, with the kernels of this day:
#   thermo doctor --json >docs/reference/kernels/6.18.json           on a machine of that kernel
#   GUEST_OUT=/tmp/guests make guest                       leaves 6.1/ and 6.12/ there, each with doctor.json,
#   cp /tmp/guests/6.1/doctor.json docs/reference/kernels/6.1.json   doctor-nobody.json and doctor-lockdown.json
#   GUEST_OUT=/tmp/guests tests/guest/guest.sh idle        the same of the kernel with the idle-page bitmap
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/reference/kernels.md
begin='<!-- made by scripts/kernels.sh from docs/reference/kernels/: begin -->'
end='<!-- made by scripts/kernels.sh: end -->'

for marker in "$begin" "$end"; do
    if ! grep -qxF -- "$marker" "$page"; then
        echo "kernels: $page has no line '$marker', so there is no place for the table" >&2
        exit 1
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line a feature: column, heading, tracker or action, name, true or false, why.
list_features() {
    local file column=0
    while read -r file; do
        column=$((column + 1))
        # Each object on a line of its own, headed by the list it is in.
        sed 's/"\(actions\|trackers\)":\[/\n\1\n/g; s/{"available":/\n&/g' "$file" |
            awk -v column="$column" -v heading="$(heading_of "$file")" '
                $0 == "actions" || $0 == "trackers" { kind = substr($0, 1, length($0) - 1) }
                /^{"available":/ {
                    print column "\t" heading "\t" kind "\t" text("name") "\t" (/^{"available":true/ ? "true" : "false") "\t" text("reason")
                }
                # Of this line; empty where the object has no such field.
                function text(field,    rest) {
                    rest = $0
                    if (!sub(".*\"" field "\":\"", "", rest)) return ""
                    gsub(/\\"/, "\001", rest)
                    sub(/".*/, "", rest)
                    gsub("\001", "\"", rest)
                    return rest
                }'
    done < <(printf '%s\n' docs/reference/kernels/*.json | sort -V)
}

# "6.12.95 lockdown" of docs/reference/kernels/6.12-lockdown.json.
heading_of() { # FILE
    local variant
    variant=$(basename "$1" .json)
    sed 's/.*"kernel":"\([0-9.]*\).*/\1/; s/\.$//' "$1" | tr -d '\n'
    case "$variant" in *-*) printf ' %s' "${variant#*-}" ;; esac
}

# Reasons are told once, below the table, numbered as they come in it.
make_table() {
    awk -F '\t' '
        { columns = $1; heading[$1] = $2; row = $3 " `" $4 "`"; reason[row, $1] = $5 == "true" ? "" : $6 }
        !(row in known) { known[row] = 1; rows[$3, ++count[$3]] = row }
        END {
            printf "| |"; for (i = 1; i <= columns; i++) printf " %s |", heading[i]
            printf "\n| --- |"; for (i = 1; i <= columns; i++) printf " --- |"
            printf "\n"
            print_rows("tracker")
            print_rows("action")
            print ""
            for (i = 1; i <= notes; i++) print i ". " note[i]
        }
        function print_rows(kind,    i, j, row) {
            for (i = 1; i <= count[kind]; i++) {
                row = rows[kind, i]
                printf "| %s |", row
                for (j = 1; j <= columns; j++) printf " %s |", cell(reason[row, j])
                printf "\n"
            }
        }
        function cell(why) {
            if (why == "") return "yes"
            if (!(why in number)) { number[why] = ++notes; note[notes] = why }
            return "no (" number[why] ")"
        }'
}

list_features >"$work/features"
make_table <"$work/features" >"$work/table"
awk -v begin="$begin" -v end="$end" -v table="$work/table" '
    $0 == end { inside = 0 }
    !inside { print }
    $0 == begin { inside = 1; while ((getline line < table) > 0) print line }' "$page" >"$work/page"
if [ "${1:-}" = --check ]; then
    diff -u "$page" "$work/page" || { echo "kernels: $page is not what docs/reference/kernels/ says: run scripts/kernels.sh" >&2; exit 1; }
else
    cp "$work/page" "$page"
fi
