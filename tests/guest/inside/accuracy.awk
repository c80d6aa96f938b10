# Bytes that are said to be hot (accessed in a fifth of the samples or more: a loaded host lets the
# program itself rest at times) against those that truly are.
# First file: start and end of what is hot. Second: `thermo report regions --csv`.
FNR == NR { start[NR] = $1; end[NR] = $2; truly += $2 - $1; ranges = NR; next }
FNR == 1 { FS = ","; next }
{
    $0 = $0
    if ($5 * 5 < $6 || $5 == 0) next
    said += $4 - $3
    for (i = 1; i <= ranges; i++) {
        from = $3 > start[i] ? $3 : start[i]
        to = $4 < end[i] ? $4 : end[i]
        if (to > from) both += to - from
    }
}
END {
    wrong = said - both + truly - both
    printf "%d %d %d\n", said ? 100 * both / said : 0, truly ? 100 * both / truly : 0, truly ? 100 * wrong / truly : 0
}
