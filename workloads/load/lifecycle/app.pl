# A Perl program with a hash of texts. Reads a part of the hash for each line of input.
use strict; use warnings; $| = 1;
my %items = map { $_ => "item $_ " x 12 } 1 .. 260_000;
print "ready\n";
while (<STDIN>) { my $sum = 0; $sum += length $items{$_} for 1 .. 50_000; print "done $sum\n"; }
