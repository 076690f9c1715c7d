import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator's InterProcessMutex under the load that load/src/lib.rs describes: Worker HOST:PORT. */
public class Worker {
    private static final int TTL_MS = 30_000;
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();
    private static CuratorFramework client;

    public static void main(String[] words) throws Exception {
        client = CuratorFrameworkFactory.newClient(words[0], TTL_MS, 5000, new RetryOneTime(1000));
        client.start();
        client.blockUntilConnected();
        say("ready");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split(" ");
            long[] numbers = new long[request.length - 1];
            for (int at = 0; at < numbers.length; at++) {
                numbers[at] = Long.parseLong(request[at + 1]);
            }
            List<Long> answer = request[0].equals("pairs") ? pairs(numbers) : contend(numbers);
            say(answer.stream().map(String::valueOf).collect(Collectors.joining(" ")));
        }
        client.close();
        THREADS.shutdownNow();
    }

    private static List<Long> pairs(long[] numbers) throws Exception {
        long begun = System.nanoTime();
        long end = begun + numbers[1] * 1_000_000;
        List<Callable<List<Long>>> works = new ArrayList<>();
        for (long at = 0; at < numbers[0]; at++) {
            InterProcessMutex lock = new InterProcessMutex(client, "/bench/pair/" + at);
            works.add(() -> {
                List<Long> latencies = new ArrayList<>();
                for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
                    lock.acquire();
                    lock.release();
                    latencies.add(System.nanoTime() - asked);
                }
                return latencies;
            });
        }
        List<Long> latencies = together(works);
        latencies.add(0, System.nanoTime() - begun);
        return latencies;
    }

    private static List<Long> contend(long[] numbers) throws Exception {
        long first = numbers[0], count = numbers[1], hold = numbers[2], think = numbers[3];
        long end = System.nanoTime() + numbers[4] * 1_000_000;
        long over = end + numbers[5] * 1_000_000;
        List<Callable<List<Long>>> works = new ArrayList<>();
        for (long who = first; who < first + count; who++) {
            long own = who;
            works.add(() -> {
                InterProcessMutex lock = new InterProcessMutex(client, "/bench/contended");
                List<Long> events = new ArrayList<>();
                for (long requested = System.nanoTime(); requested < end; requested = System.nanoTime()) {
                    boolean held = lock.acquire(Math.max(over - requested, 1_000_000), TimeUnit.NANOSECONDS);
                    long granted = System.nanoTime();
                    if (!held) {
                        Collections.addAll(events, own, requested, granted, granted);
                        break;
                    }
                    TimeUnit.MILLISECONDS.sleep(hold);
                    long releasing = System.nanoTime();
                    lock.release();
                    Collections.addAll(events, own, requested, granted, releasing);
                    TimeUnit.MILLISECONDS.sleep(think);
                }
                return events;
            });
        }
        return together(works);
    }

    /** All works at once; what each came to, one after the other. */
    private static List<Long> together(List<Callable<List<Long>>> works) throws Exception {
        List<Long> all = new ArrayList<>();
        for (Future<List<Long>> work : THREADS.invokeAll(works)) {
            all.addAll(work.get());
        }
        return all;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
