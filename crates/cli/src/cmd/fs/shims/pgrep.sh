
case "$*" in
*kdamond*) ;;
*) next pgrep "$@" ;;
esac
usage='use pgrep [-acfilnowx] PATTERN'
pattern='' exact='' ignore='' columns=1 count='' pick=cat
while [ $# -gt 0 ]; do
    case "$1" in
    -[!-]?*)
        rest=${1#-?}
        first=${1%"$rest"}
        shift
        set -- '' "$first" "-$rest" "$@"
        ;;
    -x | --exact) exact=-x ;;
    -i | --ignore-case) ignore=-i ;;
    -l | --list-name | -a | --list-full) columns=1- ;;
    -c | --count) count=1 ;;
    -n | --newest) pick='tail -n 1' ;;
    -o | --oldest) pick='head -n 1' ;;
    -f | --full | -w | --lightweight | --) ;;
    -*) refuse "$1" "$usage" ;;
    *) pattern=$1 ;;
    esac
    shift
done
found=$(kdamonds | while read -r tid name; do
    echo "$name" | grep -qE $exact $ignore -e "$pattern" && echo "$tid $name"
done | $pick | cut -d ' ' -f "$columns")
if [ -n "$count" ]; then
    echo "$found" | grep -c .
elif [ -n "$found" ]; then
    echo "$found"
fi
[ -n "$found" ]
