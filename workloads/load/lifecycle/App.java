// A Java program with a map of texts. Reads a part of the map for each line of input.
import java.io.*;
import java.util.*;

public class App {
    public static void main(String[] arguments) throws IOException {
        Map<Integer, String> map = new HashMap<>();
        for (int n = 0; n < 400000; n++) map.put(n, "item " + n + " of a map of texts that is kept");
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            long sum = 0;
            for (int n = 0; n < 60000; n++) sum += map.get(n).hashCode();
            System.out.println("done " + sum);
        }
    }
}
