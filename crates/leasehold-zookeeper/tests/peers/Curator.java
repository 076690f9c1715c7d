import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Takes the lock at PATH, says so, and gives it back when its input ends. */
public class Curator {
    public static void main(String[] words) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(words[0], 20000, 5000, new RetryOneTime(1000));
        client.start();
        InterProcessLock lock;
        switch (words[2]) {
            case "mutex":
                lock = new InterProcessMutex(client, words[1]);
                break;
            case "read":
                lock = new InterProcessReadWriteLock(client, words[1]).readLock();
                break;
            default:
                throw new IllegalArgumentException(words[2]);
        }
        lock.acquire();
        System.out.println("held");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        lock.release();
        client.close();
        System.out.println("free");
    }
}
