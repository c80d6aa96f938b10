/**
 * A hash table of 40 million numbers in a Java heap of 1 GiB, read at random: every lookup accesses another page.
 *
 * usage: Table LOOKUPS SEED
 */
public class Table {
    private static final int SLOTS = 1 << 26;
    private static final int NUMBERS = 40_000_000;
    private final long[] keys = new long[SLOTS];
    private final long[] values = new long[SLOTS];

    /** A hash of a number, used as its key. Never 0. */
    private static long mixed(long number) {
        long bits = (number + 1) * 0x9e3779b97f4a7c15L;
        bits ^= bits >>> 32;
        bits *= 0xd6e8feb86659fd93L;
        return bits ^ bits >>> 32 | 1;
    }

    private int place(long key) {
        int at = (int) (key >>> 20) & SLOTS - 1;
        while (keys[at] != 0 && keys[at] != key) at = at + 1 & SLOTS - 1;
        return at;
    }

    private void put(long number) {
        int at = place(mixed(number));
        keys[at] = mixed(number);
        values[at] = number;
    }

    public static void main(String[] words) {
        long lookups = Long.parseLong(words[0]);
        long state = Long.parseLong(words[1]) * 2 + 1;
        var table = new Table();
        for (long number = 0; number < NUMBERS; number++) table.put(number);
        long wrong = 0;
        for (long n = 0; n < lookups; n++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            long number = (state >>> 33) % NUMBERS;
            if (mixed(table.values[table.place(mixed(number))]) != mixed(number)) wrong++;
        }
        System.out.println(wrong == 0 ? "TEST PASSED" : "TEST FAILED");
    }
}
