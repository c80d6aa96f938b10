import java.util.HashMap;
import java.util.concurrent.ConcurrentHashMap;

/** Threads that allocate, compute and sleep until standard input ends. Then prints whether a thread found an error. */
public class Busy {
    static volatile boolean stop;

    public static void main(String[] words) throws Exception {
        var counts = new ConcurrentHashMap<Integer, Long>();
        var threads = new Thread[6];
        for (int n = 0; n < threads.length; n++) {
            int nr = n;
            threads[n] = new Thread(() -> work(nr, counts));
            threads[n].start();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        stop = true;
        for (var thread : threads) thread.join();
        boolean all = true;
        for (int n = 0; n < threads.length; n++) all &= counts.getOrDefault(n, -1L) > 0;
        System.out.println(all ? "TEST PASSED" : "TEST FAILED");
    }

    static void work(int nr, ConcurrentHashMap<Integer, Long> counts) {
        long rounds = 0;
        double vector = 1;
        try {
            while (!stop) {
                var table = new HashMap<Integer, String>();
                for (int n = 0; n < 20_000; n++) {
                    table.put(n, Integer.toString(n));
                    vector = Math.sqrt(vector + n) + 1;
                }
                for (int n = 0; n < 20_000; n++)
                    if (Integer.parseInt(table.get(n)) != n) throw new IllegalStateException("a table has a wrong value");
                rounds++;
                if (nr % 2 == 0) Thread.sleep(1);
            }
            counts.put(nr, Double.isFinite(vector) ? rounds : -1);
        } catch (Exception error) {
            error.printStackTrace();
            counts.put(nr, -1L);
        }
    }
}
