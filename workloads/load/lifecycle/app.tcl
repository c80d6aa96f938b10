# A Tcl program with an array of texts. Reads a part of the array for each line of input.
for {set n 0} {$n < 220000} {incr n} { set items($n) [string repeat "item $n " 10] }
puts ready; flush stdout
while {[gets stdin line] >= 0} {
    set sum 0
    for {set n 0} {$n < 40000} {incr n} { incr sum [string length $items($n)] }
    puts "done $sum"; flush stdout
}
