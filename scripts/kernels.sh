#!/usr/bin/env bash
# Generates the table of docs/reference/kernels.md from the output of `thermo doctor --json` on several
# kernels: docs/reference/kernels/NAME.json, one file per column.
# Usage: scripts/kernels.sh [--check]
#
# --check   change nothing, and fail if the page differs from the files
#
# To update the files:
#   thermo doctor --json >docs/reference/kernels/6.18.json      on a machine with that kernel
#   GUEST_OUT=FOLDER make guest                                 writes doctor.json, doctor-nobody.json and
#                                                               doctor-lockdown.json, for 6.1 and 6.12
#   cp FOLDER/6.1/doctor.json docs/reference/kernels/6.1.json   and so on
#   GUEST_OUT=FOLDER tests/guest/guest.sh idle                  the same, with the idle-page bitmap
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/reference/kernels.md
begin='<!-- made by scripts/kernels.sh from docs/reference/kernels/: begin -->'
end='<!-- made by scripts/kernels.sh: end -->'

for marker in "$begin" "$end"; do
    if ! grep -qxF -- "$marker" "$page"; then
        echo "kernels: $page has no line '$marker': add it where the table belongs" >&2
        exit 1
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints one line per feature: column, heading, tracker or action, name, true or false, reason.
list_features() {
    local file column=0
    while read -r file; do
        column=$((column + 1))
        # Put each object on its own line, after a line with the name of its list.
        sed 's/"\(actions\|trackers\)":\[/\n\1\n/g; s/{"available":/\n&/g' "$file" |
            awk -v column="$column" -v heading="$(heading_of "$file")" '
                $0 == "actions" || $0 == "trackers" { kind = substr($0, 1, length($0) - 1) }
                /^{"available":/ {
                    print column "\t" heading "\t" kind "\t" text("name") "\t" (/^{"available":true/ ? "true" : "false") "\t" text("reason")
                }
                # The value of a field in this line. Empty if the object has no such field.
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

# Prints the heading of a file, e.g. "6.12.95 lockdown" for docs/reference/kernels/6.12-lockdown.json.
heading_of() { # FILE
    local variant
    variant=$(basename "$1" .json)
    sed 's/.*"kernel":"\([0-9.]*\).*/\1/; s/\.$//' "$1" | tr -d '\n'
    case "$variant" in *-*) printf ' %s' "${variant#*-}" ;; esac
}

# Prints the table. Each reason is printed once below it, numbered by first use.
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
    diff -u "$page" "$work/page" || { echo "kernels: $page differs from docs/reference/kernels/: run scripts/kernels.sh" >&2; exit 1; }
else
    cp "$work/page" "$page"
fi
