# Compares reported hot bytes with truly hot bytes. A region is reported hot if at least a fifth of the
# samples found it accessed: on a loaded host the program does not run all the time. First file: start and end
# of truly hot ranges. Second file: `thermo report regions --csv`. Prints precision, recall and error in
# percent.
FNR == NR { start[NR] = $1; end[NR] = $2; hot += $2 - $1; ranges = NR; next }
FNR == 1 { FS = ","; next }
{
    $0 = $0
    if ($5 * 5 < $6 || $5 == 0) next
    reported += $4 - $3
    for (i = 1; i <= ranges; i++) {
        from = $3 > start[i] ? $3 : start[i]
        to = $4 < end[i] ? $4 : end[i]
        if (to > from) correct += to - from
    }
}
END {
    wrong = reported - correct + hot - correct
    printf "%d %d %d\n", reported ? 100 * correct / reported : 0, hot ? 100 * correct / hot : 0, hot ? 100 * wrong / hot : 0
}
