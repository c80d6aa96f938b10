
case "$*" in
*kdamond*) ;;
*) next pidof "$@" ;;
esac
names=' ' single='' quiet=''
for argument; do
    case "$argument" in
    -s) single=1 ;;
    -q) quiet=1 ;;
    -c | -n | -w | -x | -z) ;;
    kdamond*) names="$names$argument " ;;
    *) refuse "$argument" 'use pidof [-cnqswxz] NAME..., with names of kdamonds only' ;;
    esac
done
# As in pidof, the newest comes first.
found=$(kdamonds | {
    found=
    while read -r tid name; do
        case "$names" in
        *" $name "*) found="$tid $found" ;;
        esac
    done
    echo "${found% }"
})
[ -n "$found" ] || exit 1
[ -z "$single" ] || found=${found%% *}
[ -n "$quiet" ] || echo "$found"
