// A cache of records in a Java program: fills it, prints "ready", then reads it in a pattern and replaces a
// few records. The hot tenth moves STEPS times in a run. Unlike node's, the garbage collector does not access
// old records.
//
// usage: java Cache.java RECORDS BATCHES SEED STEPS
import java.util.Arrays;
import java.util.HashMap;
import java.util.Random;

public class Cache {
    static final int READS = 2000; // reads per batch; the time of a batch is a request latency
    static final double ANYWHERE = 0.00005; // share of reads of any record

    record Entry(int number, String kind, byte[] text) {}

    final Random random;
    final byte[][] words = new byte[1000][];
    final HashMap<Integer, Entry> entries = new HashMap<>();

    Cache(long seed) {
        random = new Random(seed);
        for (int at = 0; at < words.length; at++) {
            byte[] word = new byte[5 + random.nextInt(8)];
            for (int letter = 0; letter < word.length; letter++) word[letter] = (byte) ('a' + random.nextInt(26));
            words[at] = word;
        }
    }

    Entry entry(int number) {
        byte[] text = new byte[500];
        for (int at = 0; at < text.length; ) {
            // Word frequencies follow a power law, as in natural language.
            byte[] word = words[(int) Math.pow(words.length, random.nextDouble()) % words.length];
            int length = Math.min(word.length, text.length - at);
            System.arraycopy(word, 0, text, at, length);
            at += length;
            if (at < text.length) text[at++] = ' ';
        }
        return new Entry(number, "record", text);
    }

    public static void main(String[] arguments) {
        int records = Integer.parseInt(arguments[0]), batches = Integer.parseInt(arguments[1]);
        int steps = Integer.parseInt(arguments[3]);
        Cache cache = new Cache(Long.parseLong(arguments[2]));
        for (int number = 0; number < records; number++) cache.entries.put(number, cache.entry(number));
        // Free the garbage of filling, as after the start of a server.
        System.gc();
        System.out.println("ready");
        int width = records / 10, wrong = 0;
        long sum = 0;
        double[] millis = new double[batches];
        for (int batch = 0; batch < batches; batch++) {
            long begin = System.nanoTime();
            int hot = (int) ((long) batch * steps / batches) * width;
            for (int read = 0; read < READS; read++) {
                double place = cache.random.nextDouble();
                boolean anywhere = cache.random.nextDouble() < ANYWHERE;
                int number = anywhere ? (int) (place * records) : hot + (int) (width * place * place);
                Entry found = cache.entries.get(number);
                if (found.number() != number) wrong++;
                for (int at = 0; at < found.text().length; at += 16) sum += found.text()[at];
                if (read == 0) cache.entries.put(number, cache.entry(number));
            }
            millis[batch] = (System.nanoTime() - begin) / 1e6;
        }
        Arrays.sort(millis);
        double[] shares = {0.5, 0.99, 0.999};
        String[] names = {"p50_ms", "p99_ms", "p999_ms"};
        StringBuilder summary = new StringBuilder(wrong == 0 && sum > 0 ? "TEST PASSED" : "TEST FAILED");
        for (int at = 0; at < shares.length; at++)
            summary.append(String.format(" %s=%.4f", names[at], millis[Math.min(batches - 1, (int) (shares[at] * batches))]));
        System.out.println(summary);
    }
}
